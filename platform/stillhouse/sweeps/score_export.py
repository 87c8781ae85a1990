"""Exporting the scores that a stage learnt from, as a file that other libraries read."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stillhouse.core.artifacts import Workspace, mapped_array, read_manifest
from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import fingerprint
from stillhouse.corpora.reading.forms import ScoredRow
from stillhouse.corpora.reading.labelled import SCORES
from stillhouse.corpora.score_files import SCORE_FORMS, write_scored
from stillhouse.corpora.tables import Texts, open_texts
from stillhouse.values.data import Examples, TextTable

_COLUMNS = ("query", "passage", "negatives")
_AT_ONCE = 4096


def export_scores(folder: Path, target: Path, form: str) -> int:
    """Write the scores of every query and candidate that a finished stage's examples have.

    All that were recorded are written, also where the stage learnt from a share of the rows or from fewer
    candidates. The stage is in the workspace that holds its examples. The number of rows is returned.

    Raises:
        BadInput: The stage learnt from no scores of pairs, or they are no longer in the workspace.
    """
    require(form in SCORE_FORMS, f"format in {tuple(SCORE_FORMS)}", format=form)
    good = target.suffix == ".jsonl" and not target.is_dir()
    require(good, "scores must be written to FILE.jsonl", target=str(target))
    return write_scored(target, _rows(folder), form)


def why_no_scores(folder: Path) -> str:
    """Say why a stage has no scores to export; empty if it has some."""
    try:
        _recorded(folder)
    except BadInput as error:
        return str(error).rstrip(".")
    return ""


def _recorded(folder: Path) -> Mapping[str, Any]:
    """The examples among a stage's sources that have scores of their own, as its plan states them."""
    examples: Any = read_manifest(folder)["plan"]["with"]["examples"]
    found = None
    while examples is not None:
        stated = examples["with"]
        if SCORES in stated.get("values", ()) and set(stated["columns"]) == set(_COLUMNS):
            found = examples
        origin = stated["origin"]["with"]
        examples = origin.get("rows")
    if found is None:
        raise BadInput(
            f"scores can be exported of a stage that learnt from scores of pairs and hard negatives, but "
            f"{folder.name} did not. Export a stage of rerank_kd."
        )
    return dict(found)


def _rows(folder: Path) -> Iterator[ScoredRow]:
    workspace = Workspace(folder.parent.parent)
    recorded = _recorded(folder)
    kept = _folder_of(workspace, Examples.kind, recorded)
    columns = recorded["with"]["columns"]
    queries, passages = (_texts(workspace, columns[name]) for name in ("query", "passage"))
    ids = {name: mapped_array(kept / f"{name}.npy") for name in _COLUMNS}
    scores_NC = mapped_array(kept / f"{SCORES}.npy")
    for start in range(0, len(scores_NC), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        passage_N1, negatives_NK = ids["passage"][part][:, None], ids["negatives"][part]
        candidates_NC = np.concatenate([passage_N1, negatives_NK], axis=1)
        texts = passages[candidates_NC.reshape(-1)]
        width = candidates_NC.shape[1]
        for at, (query, scores_C) in enumerate(
            zip(queries[ids["query"][part]], scores_NC[part], strict=True)
        ):
            own = tuple(texts[at * width : (at + 1) * width])
            yield ScoredRow(query, own, tuple(float(score) for score in scores_C))


def _texts(workspace: Workspace, stated: Mapping[str, Any]) -> Texts:
    folder = _folder_of(workspace, TextTable.kind, stated)
    label = folder.name.rpartition("-")[0]
    return open_texts(workspace, TextTable(stated["with"]["sha256"], label=label))


def _folder_of(workspace: Workspace, kind: str, stated: Mapping[str, Any]) -> Path:
    """The folder of an artifact that a plan states; its label is no part of its identity."""
    name = f"*-{fingerprint(stated)}"
    found = next(iter(sorted(workspace.folder(kind).glob(name))), None)
    if found is None:
        raise BadInput(
            f"what a stage learnt from must be in its workspace, but {workspace.folder(kind)} has no {name}. "
            "Run the command that trained the stage again: it makes what is missing."
        )
    read_manifest(found)
    return found
