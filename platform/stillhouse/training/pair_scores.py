"""What a teacher says of every claim and candidate, recorded once: examples whose origin is `Scored`."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stillhouse.artifacts import Workspace, locked, remove_leftovers, replacing, write_manifest
from stillhouse.data import Scored
from stillhouse.errors import require
from stillhouse.plan import Examples, Stage
from stillhouse.spec import canonical
from stillhouse.types import FloatArray

if TYPE_CHECKING:
    from stillhouse.corpora.tables import Texts

SCORES = "scores"
AT_ONCE = 256
"""Claims between two files: what a killed process loses."""


def build_scored(
    workspace: Workspace,
    examples: Examples,
    *,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Ask the teacher for every pair, if nobody has yet; others who want it wait.

    The scores are written part by part, each whole or not at all, so a killed process loses one part.

    Args:
        workspace: Where the rows are, and the stage that teaches.
        examples: What to build; it has the columns and values of the rows, and ``scores``.
        device: Where the teacher runs.
        progress: Told of claims done and in all.

    Raises:
        BadInput: The teacher cannot be loaded, or a score is not finite.
    """
    if workspace.finished(examples):
        return
    origin = examples.origin
    assert isinstance(origin, Scored), "only scored examples are scored"
    folder = workspace.path(examples)
    with locked(folder.with_suffix(".lock")):
        if not workspace.finished(examples):
            remove_leftovers(folder)
            _build(workspace, examples, origin, folder, device, progress)


def _build(
    workspace: Workspace,
    examples: Examples,
    origin: Scored,
    folder: Path,
    device: str,
    progress: Callable[[int, int], None] | None,
) -> None:
    from stillhouse.corpora.tables import open_rows, open_texts, open_values

    columns, known = open_rows(workspace, origin.rows), open_values(workspace, origin.rows)
    texts = {name: open_texts(workspace, table) for name, table in origin.rows.columns.items()}
    rows, scorer, parts = len(columns["claim"]), None, []
    for start in range(0, rows, AT_ONCE):
        part = folder / "parts" / f"{start:09d}.npy"
        if not part.exists():
            # Loaded when there is something to ask.
            scorer = scorer or teacher_scorer(origin, workspace, device)
            chosen = slice(start, start + AT_ONCE)
            scores_QC = _scores(scorer, texts, columns["claim"][chosen], columns["documents"][chosen])
            with replacing(part) as temporary, temporary.open("wb") as file:
                np.save(file, scores_QC)
        parts.append(np.load(part))
        if progress:
            progress(min(start + AT_ONCE, rows), rows)
    for name, array in {**columns, **known, SCORES: np.concatenate(parts)}.items():
        with replacing(folder / f"{name}.npy") as temporary, temporary.open("wb") as file:
            np.save(file, array)
    write_manifest(folder, {"rows": rows, "plan": canonical(examples)})
    shutil.rmtree(folder / "parts", ignore_errors=True)


def teacher_scorer(origin: Scored, workspace: Workspace, device: str = "cpu") -> Any:
    """The teacher as a scorer of pairs.

    Raises:
        BadInput: Its stage is not finished, or it cannot be loaded.
    """
    if isinstance(origin.teacher, Stage):
        from stillhouse.training.run import encoder_in

        return encoder_in(workspace.path(origin.teacher), device)
    from stillhouse.teachers.cross_encoder import CrossEncoderScorer

    return CrossEncoderScorer(origin.teacher, origin.max_length, device)


def _scores(scorer: Any, texts: "dict[str, Texts]", claims_Q: Any, documents_QC: Any) -> FloatArray:
    queries, width = texts["claim"][claims_Q], documents_QC.shape[1]
    first = [claim for claim in queries for _ in range(width)]
    scores_N = np.asarray(scorer.score(first, texts["documents"][documents_QC]), np.float32)
    scores_QC: FloatArray = scores_N.reshape(len(queries), width)
    require(
        bool(np.isfinite(scores_QC).all()),
        "a teacher's scores are finite",
        remedy="It diverged, or its precision is too low.",
    )
    return scores_QC
