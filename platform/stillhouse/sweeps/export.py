"""Export of a trained stage: the folder, its parity check and its model card."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stillhouse.core.errors import BadInput, require
from stillhouse.core.identity import Spec
from stillhouse.core.types import Encoder, Exportable, FloatArray
from stillhouse.corpora.pydocs.licences import package_licences
from stillhouse.evaluation.geometry import GEOMETRY
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.preparation import Prepared
from stillhouse.methods import Method
from stillhouse.plan.stage import Stage
from stillhouse.reports.model_card import model_card
from stillhouse.students.export.formats import FORMATS, why_not, write_format
from stillhouse.students.export.sentence_transformers import check_parity
from stillhouse.students.export.towers import export_towers, usage
from stillhouse.students.static import StaticStudent
from stillhouse.students.towers import SeparateTowers
from stillhouse.teachers.weights import licence_of
from stillhouse.training.models import encoder_in
from stillhouse.training.scorer import StudentScorer
from stillhouse.training.watch import versions

_PARITY_TEXTS = (
    "Return the eigenvalues of a symmetric matrix in ascending order.",
    "A man is playing a guitar.",
    "Compute the inverse.",
    "Ünïcödé, 漢字 and 🙂 are cut into pieces in the same way.",
    "A longer text shows that both cut at the same token. " * 40,
)


def export_stage(
    folder: Path,
    target: Path,
    *,
    form: str = FORMATS[0],
    card: str = "",
    texts: Sequence[str] = _PARITY_TEXTS,
) -> float:
    """Export a finished stage's student, and check its vectors in the format's own runtime.

    Args:
        folder: Folder of the stage.
        target: Folder to write.
        form: One of `FORMATS`.
        card: Model card in Markdown, for a sentence-transformers folder.
        texts: Texts that the check encodes with both models.

    Returns:
        The lowest cosine between the vectors of the export and of the student.

    Raises:
        BadInput: The stage is unfinished, its student does not support the form, or the folder is in use.
        RuntimeError: The export gives other vectors.
    """
    encoder: Any = encoder_in(folder)
    student: Any = encoder.student
    gives_vectors = isinstance(encoder, Encoder)
    if not gives_vectors:
        raise BadInput(
            f"only a student that encodes single texts can be exported, but {folder} holds a model that "
            "reads pairs jointly, which is a teacher. Export the retrieval_kd stage."
        )
    if isinstance(student, Exportable) and student.export_sides:
        require(form == FORMATS[0], f"two towers are written as {FORMATS[0]} folders", format=form)
        export_towers(student, encoder.objective.joiner, encoder.max_length, target, card=card)
        return check_towers(encoder, target, texts)
    return write_format(form, encoder, target, texts, card=card)


def formats_of(folder: Path) -> dict[str, str]:
    """Map each format to the reason why a finished stage's student does not support it; empty if it does."""
    student = encoder_in(folder).student
    return {form: why_not(student, form) for form in FORMATS}


def check_towers(scorer: StudentScorer, target: Path, texts: Sequence[str], minimum: float = 0.9999) -> float:
    """Compare both exported folders, loaded by stock sentence-transformers, with the trained towers.

    With a bilinear joiner the claims' folder gives vectors whose inner product with a document is the score.

    Returns:
        The lowest cosine of all vectors.

    Raises:
        RuntimeError: A vector differs.
    """
    joiner = scorer.objective.joiner

    class Claims:
        def encode(self, texts: Sequence[str]) -> FloatArray:
            vectors = scorer.encode_column("claim", texts)
            if joiner.kind != "bilinear":
                return vectors
            with torch.no_grad():
                return np.asarray(joiner.search_vector(torch.from_numpy(vectors)).numpy())

    sides: dict[str, Encoder] = {"claims": Claims(), "documents": scorer}
    return min(check_parity(encoder, target / side, texts, minimum) for side, encoder in sides.items())


def model_card_of(
    name: str,
    method: Method,
    prepared: Prepared,
    stage: Stage,
    hyper_parameters: dict[str, Any],
    tested: dict[str, dict[str, Any]],
) -> str:
    """Write the model card of a sweep's best student."""
    student, facts = stage.student, prepared.facts
    ranking = prepared.setting.get(Claims)
    teacher = prepared.setting.teacher if ranking is None else ranking.cross_encoder
    joiner = stage.objective.kwargs["joiner"].build(claim_dim=1) if ranking else None
    stages = " then ".join(part.label for part in stage.chain())
    return model_card(
        name=name,
        teacher=facts["teacher"],
        student=_in_words(student),
        dim=int(tested["student"]["cost"]["dim"]),
        max_length=stage.max_length,
        method=f"{method.__name__.rpartition('.')[2].upper()} ({stages})",
        paper=method.PAPER,
        corpus=str(facts["corpus"]),
        rows=int(facts["sentences"]),
        sources=package_licences() if facts["corpus"] == "pydocs" else {str(facts["corpus"]): ""},
        hyper_parameters=hyper_parameters,
        metrics={
            who: {name: value for name, value in part["metrics"].items() if not name.endswith(GEOMETRY)}
            for who, part in tested.items()
        },
        sizes={who: part["cost"] for who, part in tested.items()},
        reproducibility={
            "store": facts["store"],
            "stage": stage.fingerprint,
            "seed": stage.seed,
            **{f"version of {package}": version for package, version in versions().items()},
        },
        licence=licence_of(teacher) if teacher else "",
        usage=usage(joiner) if joiner else "",
    )


def _in_words(student: Spec[Any]) -> str:
    """Describe a student's architecture and origin."""
    kwargs = student.kwargs
    if student.target is SeparateTowers:
        return _in_words(kwargs["tower"]).replace("two equal towers", "two separate towers, each a")
    if "words" in kwargs and "hidden" not in kwargs:
        units = kwargs.get("filters", kwargs.get("units"))
        return f"two equal towers, {student.target.__name__} with {units} units, over word vectors"
    if "words" in kwargs:
        return f"a bidirectional LSTM of {kwargs['hidden']} units per direction over word vectors"
    base = kwargs["base"].name or "the base model"
    if "unit" in kwargs:
        narrow = f", word vectors of {kwargs['bottleneck']} dimensions" if kwargs.get("bottleneck") else ""
        return f"the first {kwargs['unit']} layers of {base}, applied repeatedly{narrow}"
    if student.target is StaticStudent:
        return f"a table of token vectors, from {base}, and their mean"
    if kwargs.get("layers"):
        return f"layers {', '.join(str(layer) for layer in kwargs['layers'])} of {base}"
    return base
