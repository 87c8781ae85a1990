"""The claims of FEVER as examples: each with the C documents that are nearest to it by TF-IDF."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import Progress, say
from stillhouse.core.errors import require
from stillhouse.core.identity import spec
from stillhouse.core.types import IntArray
from stillhouse.corpora.candidates import coverage, pick_candidates
from stillhouse.corpora.published.fever import SPLITS, Fever, fever_files, read_fever
from stillhouse.corpora.read_once import note_path, read_once
from stillhouse.corpora.reading.row_limit import smallest
from stillhouse.corpora.reading.sources import list_files
from stillhouse.corpora.tables import open_texts, write_rows, write_texts
from stillhouse.corpora.tfidf import TfIdf
from stillhouse.evaluation.candidate_metrics import candidate_figures, judge_candidates
from stillhouse.evaluation.claim_ranking import ClaimRanking
from stillhouse.evaluation.trained_claims import TRAINING_ROWS
from stillhouse.experiments.data_kind import Measure, Reader
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.sources_read import claims_read
from stillhouse.teachers.cross_encoder import published_cross_encoder
from stillhouse.values.data import AllRows, Examples, RankingTask, TextTable
from stillhouse.values.stage import DevSuite

if TYPE_CHECKING:
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.preparation import Preparation

VERSION = 3
DCG = "fever_dcg"
TRAIN, ALL = "train", "all"
COVERED = (1, 2, 5, 10, 15, 20)
"""Values of C in Table 1, and one more."""


class ClaimReader(Reader[Claims, RankingTask]):
    """The reader of claims."""

    def check(self, experiment: "Experiment") -> None:
        """Refuse missing files, and a cross-encoder that gives no single score."""
        fever_files(self.kind.path)
        published_cross_encoder(self.kind.cross_encoder)

    def sketch(self, experiment: "Experiment") -> RankingTask:
        """Claims that are not there."""
        texts, nothing = TextTable("placeholder"), DevSuite((), select="")
        rows = Examples({"claim": texts, "documents": texts}, AllRows())
        published = published_cross_encoder(self.kind.cross_encoder)
        return RankingTask(rows, nothing, rows=1 << 40, cross_encoder=published)

    def read(self, context: "Preparation") -> tuple[Examples, Examples, Examples, Examples | None]:
        """Read claims and pages, and find the candidates: train, dev, test, and train with the unlabelled."""
        parts, facts = read_claims(self.kind, context.workspace, refresh=context.refresh)
        train, dev, test = (parts[name] for name in SPLITS)
        more = parts.get(ALL)
        claims_read(context.workspace, self.kind.path, train, facts["data"]).say()
        published = published_cross_encoder(self.kind.cross_encoder)
        context.facts |= {
            **facts,
            "sentences": facts["documents"],
            "teacher": published.name if published else "a teacher trained on the same claims",
            "store": train.fingerprint,
        }
        if more is not None:
            context.facts |= {"unlabelled_claims": context.row_count(more) - context.row_count(train)}
        rows = context.row_count(train if more is None else more)
        fraction = context.experiment.budget.share_of(self.kind.counts_as)
        claims = max(1, round(fraction * rows))
        context.facts |= {"claims": claims, "pairs": claims * self.kind.candidates}
        _say(context.facts)
        return train, dev, test, more

    def measures(self, context: "Preparation") -> tuple[Measure]:
        """Ranking of the candidates."""
        _, dev, test, _ = context.once(self.read)
        on_dev, on_test = spec(ClaimRanking, examples=dev), spec(ClaimRanking, examples=test, split="test")
        return (Measure(self.kind.key, DCG, on_dev, on_test),)

    def prepare(self, context: "Preparation") -> RankingTask:
        """The claims to learn from."""
        train, _, _, more = context.once(self.read)
        context.words += train.columns.values()
        rows, published = context.row_count(more or train), published_cross_encoder(self.kind.cross_encoder)
        return RankingTask(train, context.dev, rows, cross_encoder=published, unlabelled=more)


def _say(facts: dict[str, Any]) -> None:
    """Print what was read, Table 1, and the worth of TF-IDF's own order, which every student should beat."""
    say(f"  {facts['claims']:,} claims to learn from, {facts['candidates']} candidates each")
    say(f"  claims with all relevant documents among the C nearest: {facts['coverage']}")
    order = {name: value for name, value in facts.items() if name.startswith("tfidf_dev_")}
    say("  TF-IDF: " + ", ".join(f"{name.removeprefix('tfidf_dev_')} {v:.4f}" for name, v in order.items()))


def read_claims(
    choice: Claims, workspace: Workspace, *, refresh: bool = False
) -> tuple[dict[str, Examples], dict[str, Any]]:
    """Read the claims of every split with their candidates, and facts about them.

    They are read again when a file or an option has changed.
    """
    claims, pages = fever_files(choice.path)
    options = {
        "c": choice.candidates,
        "dev": choice.dev,
        "test": choice.test,
        "split_by": choice.split_by,
        "ngrams": choice.ngrams,
        "unlabelled": choice.unlabelled,
    }
    files = [list_files(str(path))[1] for path in (*claims, pages)]
    note = note_path(workspace, "claims", {"version": VERSION, "files": files, "options": options})

    def read() -> tuple[dict[str, Examples], dict[str, Any]]:
        fever = read_fever(claims, pages, split_by=choice.split_by)
        return write_claims(workspace, fever, choice, keep=searched)

    searched = note.with_suffix(".tfidf.npz")
    made = read_once(workspace, note, read, refresh=refresh)
    searched.unlink(missing_ok=True)
    return made


def write_claims(
    workspace: Workspace, fever: Fever, choice: Claims, *, keep: Path | None = None
) -> tuple[dict[str, Examples], dict[str, Any]]:
    """Find the candidates by TF-IDF and write the examples of every split.

    A relevant document outside of the C nearest replaces the last of them, in training only. A search of the
    candidates that was stopped continues from the file ``keep``.

    Raises:
        BadInput: There are fewer documents than candidates, or a split has no claims.
    """
    c, documents = choice.candidates, len(fever.documents)
    require(c <= documents, "candidates <= documents", candidates=c, documents=documents)
    claims = [claim for name in SPLITS for claim in fever.splits[name]]
    more = [fever.unlabelled[at] for at in smallest(fever.unlabelled, choice.unlabelled)]
    texts = [*(claim.text for claim in claims), *more]
    tables = {
        "claim": _table(workspace, "claims", texts),
        "documents": _table(workspace, "documents", fever.documents),
    }
    depths = [depth for depth in sorted({*COVERED, c}) if depth <= documents]
    index = TfIdf(fever.documents, ngrams=choice.ngrams, progress=Progress("indexing", "documents"))
    searching = Progress("searching", "claims")
    cosines_QK, ids_QK = index.nearest(texts, depths[-1], keep=keep, progress=searching)
    share = coverage(ids_QK[: len(claims)], [claim.gold for claim in claims], depths)
    parts: dict[str, Examples] = {}
    facts: dict[str, Any] = {
        "corpus": choice.path,
        "data": fever.summary,
        "documents": documents,
        "candidates": c,
        "split_by": choice.split_by,
        "coverage": ", ".join(f"C={depth} {100 * part:.2f} %" for depth, part in share.items()),
    }
    for name, rows in _rows_of(fever, choice, len(more)).items():
        own = [claims[row].gold if row < len(claims) else () for row in rows]
        picked = pick_candidates(ids_QK[rows], own, c, force_gold=name in (TRAIN, ALL))
        values = {"gold": picked.labels_QC.astype(np.int64)}
        if name not in (TRAIN, ALL):
            values["gold_count"] = picked.gold_counts_Q
            judged = judge_candidates(cosines_QK[rows, :c], picked.labels_QC, picked.gold_counts_Q)
            facts |= candidate_figures(judged, f"tfidf_{name}")
        ids = {"claim": rows, "documents": picked.ids_QC}
        notes = {"split_by": choice.split_by}
        label = TRAINING_ROWS if name == ALL else f"claims-{name}"
        parts[name] = write_rows(workspace, tables, ids, label, notes, values=values)
    return parts, facts


def _rows_of(fever: Fever, choice: Claims, unlabelled: int) -> dict[str, IntArray]:
    """Index the claims of every split among all claims; dev and test are cut to their largest number.

    With unlabelled claims, which come last, ``all`` has them together with those of the training split.
    """
    rows: dict[str, IntArray] = {}
    first = 0
    for name, most in zip(SPLITS, (len(fever.splits["train"]), choice.dev, choice.test), strict=True):
        claims = fever.splits[name]
        require(bool(claims), "every split must have claims", split=name, read=fever.summary)
        rows[name] = first + np.array(smallest((claim.text for claim in claims), most))
        first += len(claims)
    if unlabelled:
        rows[ALL] = np.concatenate([rows[TRAIN], np.arange(first, first + unlabelled)])
    return rows


def _table(workspace: Workspace, label: str, texts: Sequence[str]) -> TextTable:
    """Write texts whose row ids are their positions."""
    table = write_texts(workspace, label, texts, deduplicate=False)
    rows = len(open_texts(workspace, table))
    require(
        rows == len(texts), f"every row of the {label} must be a usable text", rows=len(texts), usable=rows
    )
    return table
