"""Hard negatives as a file for any trainer: (query, passage) pairs with passages near by the teacher."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from stillhouse.core.artifacts import Workspace, read_json, read_manifest, sha256_of
from stillhouse.core.console import say
from stillhouse.core.errors import require
from stillhouse.core.notes import has_note, write_note
from stillhouse.core.types import FloatArray
from stillhouse.core.user_files import check_writable, is_file, writing
from stillhouse.corpora.read_once import note_path
from stillhouse.corpora.reading.sources import hub_name, list_files
from stillhouse.corpora.tables import open_rows, open_texts
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.labelled_pairs import PairReader, with_negatives
from stillhouse.experiments.preparation import Preparation
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.teachers.store import open_vectors
from stillhouse.values.data import Examples, Mined

_ROWS = 2048


def pairs_of(experiment: Experiment) -> Pairs:
    """The experiment's pairs, and the rule by which negatives are mined for them."""
    pairs: Pairs = experiment.get(Pairs) or Pairs()
    return pairs


def check_mine(experiment: Experiment, output: Path) -> None:
    """Refuse missing text, a missing teacher, or a file that cannot be written, before any work.

    Raises:
        BadInput: One of these.
    """
    pairs = pairs_of(experiment)
    require(pairs.number_mined >= 1, "negatives >= 1", negatives=pairs.number_mined)
    check_writable(output, "--output")
    named = output.suffix == ".jsonl" or not is_file(output)
    require(named, "--output must be FILE.jsonl, or - for standard output", output=str(output))
    if pairs.path and hub_name(pairs.path) is None:
        files = [Path(file.path).resolve() for file in list_files(pairs.path)[1]]
        require(
            output.resolve() not in files,
            "--output must be another file than --labelled",
            output=str(output),
            remedy="Name a new file.",
        )
    experiment.teacher.finder.resolve()


def mine(
    experiment: Experiment, workspace: Workspace, embedding: Embedding, output: Path, *, refresh: bool = False
) -> dict[str, Any]:
    """Read the pairs, run the teacher once over them, mine, and write the file; skip what exists.

    The file has one pair per line: ``query``, ``passage``, ``negatives``, ``passage_cosine``,
    ``negatives_cosine``. Negatives that come with the labelled text are ignored.

    Returns:
        The results as `--json` writes them.

    Raises:
        BadInput: No pair is usable, or no pair has enough negatives.
    """
    started = time.monotonic()
    data = Preparation(experiment, workspace, embedding, refresh)
    pairs = pairs_of(experiment)
    given = PairReader(pairs).read(data, negatives=0)
    examples = with_negatives(given, pairs.mining, pairs.number_mined, data.store)
    rule = examples.origin
    assert isinstance(rule, Mined), "negatives that come with the pairs are set aside"
    signature = {"examples": examples.fingerprint, "output": str(output.resolve())}
    note = note_path(workspace, "mined-file", signature)
    if has_note(note) and output.is_file() and (kept := read_json(note))["sha256"] == sha256_of(output):
        say(f"  {output} is up to date")
        report: dict[str, Any] = kept["report"]
        return report
    data.make(rule.queries, rule.passages, examples)
    examples = data.settled(examples)
    assert isinstance(examples.origin, Mined)
    means = _write(workspace, examples, examples.origin, output)
    teacher, manifest = rule.queries.teacher, read_manifest(workspace.path(examples))
    report = {
        "output": str(output),
        "pairs": manifest["rows"],
        "left_out": manifest["dropped"],
        "negatives": pairs.number_mined,
        **means,
        "teacher": str(getattr(teacher, "name", "")),
        "rule": asdict(pairs.mining),
        "seconds": round(time.monotonic() - started, 3),
    }
    if output.is_file():
        write_note(note, {"sha256": sha256_of(output), "report": report})
    return report


def _write(workspace: Workspace, examples: Examples, rule: Mined, output: Path) -> dict[str, float]:
    """Write the file, whole or not at all, and return the mean cosines of positives and negatives."""
    positives, negatives = [], []
    with writing(output) as file:
        for lines, cosine_R, cosine_RK in _lines(workspace, examples, rule):
            file.write(lines)
            positives.append(cosine_R)
            negatives.append(cosine_RK)
    return {
        "mean_positive_cosine": round(float(np.concatenate(positives).mean()), 6),
        "mean_negative_cosine": round(float(np.concatenate(negatives).mean()), 6),
    }


def _lines(
    workspace: Workspace, examples: Examples, rule: Mined
) -> Iterator[tuple[str, FloatArray, FloatArray]]:
    """Yield the lines of R rows at a time, with the cosines of their positives and negatives."""
    rows = open_rows(workspace, examples)
    query_store, passage_store = open_vectors(workspace, rule.queries), open_vectors(workspace, rule.passages)
    queries, passages = open_texts(workspace, rule.queries.texts), open_texts(workspace, rule.passages.texts)
    for start in range(0, len(rows["query"]), _ROWS):
        query, passage, negatives_RK = (
            rows[name][start : start + _ROWS] for name in ("query", "passage", "negatives")
        )
        query_RE = _unit(query_store.gather(query))
        cosine_R = (query_RE * _unit(passage_store.gather(passage))).sum(axis=-1)
        cosine_RK = (query_RE[:, None] * _unit(passage_store.gather(negatives_RK))).sum(axis=-1)
        wrong = iter(passages[negatives_RK.reshape(-1)])
        written = (
            {
                "query": question,
                "passage": answer,
                "negatives": [next(wrong) for _ in cosines],
                "passage_cosine": round(float(cosine), 6),
                "negatives_cosine": [round(float(value), 6) for value in cosines],
            }
            for question, answer, cosine, cosines in zip(
                queries[query], passages[passage], cosine_R, cosine_RK, strict=True
            )
        )
        yield "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in written), cosine_R, cosine_RK


def _unit(vectors: FloatArray) -> FloatArray:
    unit: FloatArray = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return unit
