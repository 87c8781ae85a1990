"""Time over pairs of QQP (SRA, Table 2), or of FEVER's claims and pages (Shakeri et al., Table 8)."""

from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import fingerprint
from stillhouse.core.types import MeasuredSize, StudentHolder
from stillhouse.corpora.published.fever import read_fever
from stillhouse.corpora.tfidf import TfIdf
from stillhouse.evaluation.benchmark import About, Benchmark, Options
from stillhouse.evaluation.benchmarks.fever import claims_and_pages
from stillhouse.evaluation.benchmarks.glue import splits_of
from stillhouse.evaluation.finite_encoder import FiniteEncoder
from stillhouse.evaluation.items import Figures
from stillhouse.evaluation.pair_speed import TextPairs, pair_speed, seconds_to_open
from stillhouse.evaluation.serving_cost import threads_of
from stillhouse.students.sizes import sizes

NEEDS_DATA = True
MTEB_TASKS: tuple[str, ...] = ()
FLAGS = {
    "pairs_of": {
        "choices": ["qqp", "fever"],
        "default": "qqp",
        "help": "whose pairs: questions of qqp (default), or claims of fever with their candidates",
    },
    "timed_pairs": {
        "type": "int",
        "metavar": "N",
        "help": "number of pairs, the first ones (qqp 100000, fever all)",
    },
    "pairs_per_batch": {"type": "int", "metavar": "N", "help": "pairs per batch (qqp 1024, fever 8)"},
}

PER_BATCH = {"qqp": 1024, "fever": 8}
"""Pairs per batch in the papers' tables."""
QUESTIONS, CANDIDATES = 100_000, 10


def prepare(root: str, options: Options) -> Benchmark:
    """Read the pairs; no label is read, so the test splits stay closed."""
    of = options.flag("pairs_of", "qqp")
    at_once = options.flag("pairs_per_batch", PER_BATCH[of])
    require(at_once >= 1, "--pairs-per-batch >= 1", pairs_per_batch=at_once)
    most = options.flag("timed_pairs", QUESTIONS if of == "qqp" else None)
    require(most is None or most >= 1, "--timed-pairs >= 1", timed_pairs=most)
    found, note = _questions(root) if of == "qqp" else _claims(root)
    pairs = TextPairs(found.first[:most], found.second[:most])
    asked = f", {most:,} were asked for" if most is not None and len(pairs) < most else ""

    def measure(checked: FiniteEncoder) -> Figures:
        model = checked.model
        figures = pair_speed(model, pairs, at_once=at_once)
        if checked.reopen is not None:
            figures["seconds_to_open"] = seconds_to_open(checked.reopen)
        figures["threads"] = float(threads_of(model))
        if isinstance(model, MeasuredSize):
            return {of: figures | model.sizes()}
        return {of: figures | sizes(model.student if isinstance(model, StudentHolder) else model)}

    split = "all" if of == "qqp" else "dev"
    about = About(split, fingerprint([pairs.first, pairs.second]), "pairs", len(pairs))
    return Benchmark(measure, (f"{len(pairs):,} pairs: {note}{asked}",), {of: about})


def _questions(root: str) -> tuple[TextPairs, str]:
    """The pairs of QQP, those of train before those of dev."""
    rows = [row for split in splits_of(root, "qqp").values() for row in split]
    if not rows:
        raise BadInput(
            f"no files of QQP under the data root {root!r}. Put its train.tsv or dev.tsv, from "
            "gluebenchmark.com, in glue/QQP."
        )
    return TextPairs([row.first for row in rows], [row.second or "" for row in rows]), "questions of QQP"


def _claims(root: str) -> tuple[TextPairs, str]:
    """The dev claims of FEVER, each with its nearest pages by TF-IDF."""
    data = read_fever(*claims_and_pages(root))
    claims, c = [claim.text for claim in data.splits["dev"]], min(CANDIDATES, len(data.documents))
    _, ids_QC = TfIdf(data.documents).nearest(claims, c)
    first = [claim for claim in claims for _ in range(c)]
    second = [data.documents[row] for row in ids_QC.ravel()]
    return TextPairs(first, second), f"{len(claims):,} dev claims of FEVER with {c} pages each"
