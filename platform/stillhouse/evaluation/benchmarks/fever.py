"""FEVER's claims, each over the C documents that TF-IDF finds for it (Shakeri et al., §2)."""

from pathlib import Path

import numpy as np

from stillhouse.core.artifacts import sha256_of
from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import fingerprint
from stillhouse.core.roles import DOCUMENT, QUERY
from stillhouse.core.types import ColumnScorer, Encoder, FloatArray
from stillhouse.corpora.candidates import Candidates, coverage, pick_candidates
from stillhouse.corpora.published.fever import CLAIM_FILES, PAGE_FILES, Fever, read_fever
from stillhouse.corpora.tfidf import Scores, TfIdf
from stillhouse.evaluation.benchmark import About, Benchmark, Options, itemised, opened
from stillhouse.evaluation.candidate_metrics import DEPTHS, candidate_values, judge_candidates
from stillhouse.evaluation.finite_encoder import FiniteEncoder, Piecewise
from stillhouse.evaluation.items import Items, Measured, means, measured
from stillhouse.evaluation.retrieval import unit
from stillhouse.evaluation.trained_claims import trained_claims

NEEDS_DATA = True
MTEB_TASKS: tuple[str, ...] = ()
FLAGS = {
    "candidates": {"type": "int", "metavar": "N", "help": "nearest documents per claim by TF-IDF (10)"},
}

PLACES = ("fever", ".")
TFIDF = "TF-IDF"
"""Name of the figures of the retrieval that finds the candidates."""
RANKED = ("claim", "documents")
"""Columns of a model that was trained to rank the documents of a claim."""


def prepare(root: str, options: Options) -> Benchmark:
    """Read claims and pages; candidates are ranked by the model, and by TF-IDF itself for comparison.

    The claims are split as for the models that were trained on claims; without any, by claim.
    """
    claims, pages = claims_and_pages(root)
    split_by = _split_by(options)
    data, split = read_fever(claims, pages, split_by=split_by), "test" if options.final else "dev"
    split_claims = data.splits[split]
    for model, folder in options.stages.items():
        trained = trained_claims(folder)
        if trained is not None:
            trained.refuse_overlap(model, split, [claim.text for claim in split_claims])
    c, documents = options.flag("candidates", 10), len(data.documents)
    require(1 <= c <= documents, "1 <= --candidates <= documents", candidates=c, documents=documents)
    if not split_claims:
        named = ", ".join(map(str, claims))
        raise BadInput(f"{named} has no claims of the {split} split: {data.summary}.")

    def measure(model: FiniteEncoder) -> Measured:
        gold = [claim.gold for claim in split_claims]
        tfidf_QC, ids_QC = TfIdf(data.documents).nearest([claim.text for claim in split_claims], c)
        picked = pick_candidates(ids_QC, gold, c, force_gold=False)
        scores_QC = _scores(model, data, split, picked)
        covered = coverage(ids_QC, gold, (c,))[c]
        found = measured({TFIDF: _items(tfidf_QC, picked), "model": _items(scores_QC, picked)})
        figures = {name: each | {f"covered@{c}": covered} for name, each in found.figures.items()}
        return Measured(figures, found.items)

    named = " and ".join(each.name for each in claims)
    note = f"{split} split by {split_by}, {len(split_claims)} claims of {named}; {data.summary}"
    known = (*map(sha256_of, claims), split, len(split_claims), documents)
    about = About(split, fingerprint(known), "claims", len(split_claims))
    search = {"searches": True, "baselines": (TFIDF,), "sets": {TFIDF: about, "model": about}}
    return itemised(measure, (note,), opens=opened(options, known), digits=4, **search)


def _split_by(options: Options) -> str:
    trained = {name: trained_claims(folder) for name, folder in options.stages.items()}
    known = {name: each.split_by for name, each in trained.items() if each is not None}
    require(
        len(set(known.values())) <= 1,
        "models that are compared must be trained with one split of the claims",
        **known,
    )
    return next(iter(known.values()), "claim")


def _scores(model: FiniteEncoder, data: Fever, split: str, picked: Candidates) -> FloatArray:
    """Compute the model's own scores of the candidates, if it was trained to rank documents, or cosines."""
    if not isinstance(model.model, ColumnScorer) or model.model.columns != RANKED:
        return _cosines(model, data, split, picked)
    claims, width = data.splits[split], picked.ids_QC.shape[1]
    first = [claim.text for claim in claims for _ in range(width)]
    second = [data.documents[row] for row in picked.ids_QC.ravel()]
    return np.asarray(model.model.score(first, second), np.float64).reshape(-1, width)


def _cosines(model: Encoder, data: Fever, split: str, picked: Candidates) -> FloatArray:
    """Compute the cosine of every claim with its candidates, (Q, C); a document is encoded once."""
    rows = np.unique(picked.ids_QC)
    encode = Piecewise(model, DOCUMENT, "encoding FEVER", "documents", len(rows))
    documents_ND = unit(encode([data.documents[row] for row in rows]))
    claims = [claim.text for claim in data.splits[split]]
    claims_QD = unit(Piecewise(model, QUERY, "encoding FEVER", "claims", len(claims))(claims))
    # One claim at a time: a figure must not depend on the number of claims.
    return np.array(
        [
            documents_ND[np.searchsorted(rows, ids)] @ claim
            for ids, claim in zip(picked.ids_QC, claims_QD, strict=True)
        ]
    )


def _items(scores_QC: FloatArray | Scores, picked: Candidates) -> dict[str, Items]:
    """Return the paper's figures under the paper's names, then the standard ones, some of them the same."""
    judged = judge_candidates(scores_QC, picked.labels_QC, picked.gold_counts_Q)
    c = picked.ids_QC.shape[1]
    depths = [k for k in DEPTHS if k <= c]
    found = means(candidate_values(judged))
    return {
        "R(1)": found["accuracy@1"],
        **{f"R_micro({k})": found[f"recall_micro@{k}"] for k in depths},
        **{f"R_macro({k})": found[f"recall_macro@{k}"] for k in depths},
        "DCG": found["dcg"],
        "accuracy@1": found["accuracy@1"],
        **{f"recall@{k}": found[f"recall_macro@{k}"] for k in depths},
        f"mrr@{c}": found[f"mrr@{c}"],
        f"ndcg@{c}": found[f"ndcg@{c}"],
    }


def claims_and_pages(root: str) -> tuple[list[Path], Path]:
    """Find FEVER's files under a data root.

    Raises:
        BadInput: If there are no claims, or no pages.
    """
    claims, pages = (_found(root, names) for names in (CLAIM_FILES, PAGE_FILES))
    if not claims or not pages:
        raise BadInput(
            f"FEVER's claims and pages must lie under the data root {root!r}. Put {CLAIM_FILES[0]} "
            f"and {PAGE_FILES[0]}, from fever.ai, in {PLACES[0]}."
        )
    return claims, pages[0]


def _found(root: str, names: tuple[str, ...]) -> list[Path]:
    """The files of these names, in the first place that has any."""
    places = ([Path(root) / place / name for name in names] for place in PLACES)
    found = ([path for path in paths if path.exists()] for paths in places)
    return next((paths for paths in found if paths), [])
