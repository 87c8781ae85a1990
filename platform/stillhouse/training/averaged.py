"""The mean of several trained students, such as those of three seeds: a soup.

Wortsman et al., Model soups, ICML 2022, arXiv:2203.05482, average the weights of models that were trained
apart from the same weights. Such models lie in one valley of the loss, and their mean is often better than
each of them, at the cost of one. Models whose layers were drawn anew do not, and their mean is none: so it is
measured here whether the students give similar vectors, and the mean is nearer to them than they are to each
other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import BadInput, require
from stillhouse.core.types import FloatArray
from stillhouse.evaluation.retrieval import unit
from stillhouse.students.encoder import StudentEncoder
from stillhouse.training.models import encoder_in
from stillhouse.training.soup import mean_of

_ONE_SPACE = 0.5
"""The least mean cosine of students that live in one space; those of spaces drawn apart have about 0."""


@dataclass(frozen=True)
class Averaged:
    """The mean of several students.

    Attributes:
        encoder: The student with the mean of the weights.
        to_students: Mean cosine between its vectors and those of the student that it is farthest from.
        among_students: Mean cosine between the vectors of the two students that are farthest apart.
    """

    encoder: StudentEncoder
    to_students: float
    among_students: float


def averaged(folders: Sequence[Path], texts: Sequence[str]) -> Averaged:
    """Average the weights of the students of finished stages.

    Args:
        folders: The stages, at least two; everything but the weights is that of the first.
        texts: What is encoded to see how far the students are apart; at least one.

    Raises:
        BadInput: A stage is unfinished or named twice, the students differ in more than their weights, their
            objectives have a part in their scores, or they are too far apart.
    """
    names = ", ".join(folder.name for folder in folders)
    different = len({folder.resolve() for folder in folders})
    require(len(folders) == different > 1, "a mean is of two or more different stages", stages=names)
    _check_alike(folders)
    encoders = [encoder_in(folder) for folder in folders]
    for folder, encoder in zip(folders, encoders, strict=True):
        if not isinstance(encoder, StudentEncoder):
            raise BadInput(
                "students that are averaged must be nothing but encoders of single texts, but "
                f"{folder.name} scores pairs, with a head or jointly. Average students without one."
            )
    vectors = [unit(encoder.encode(texts)) for encoder in encoders]
    first: Any = encoders[0].student
    first.load_state_dict(mean_of([encoder.student.state_dict() for encoder in encoders], first))
    mean_ND = unit(encoders[0].encode(texts))
    to_students = min(_cosine(mean_ND, each) for each in vectors)
    among = min(_cosine(*pair) for pair in combinations(vectors, 2))
    if not (among >= _ONE_SPACE and to_students >= among - 1e-3):
        raise BadInput(
            "students whose weights are averaged must be so close that the mean is one of them, but its "
            f"vectors have a mean cosine of {to_students:.3f} with theirs, which have {among:.3f} with each "
            "other. Average students that began with the same weights: layers of the teacher, and none that "
            "every seed draws anew."
        )
    return Averaged(encoders[0], to_students, among)


def _check_alike(folders: Sequence[Path]) -> None:
    """Refuse students of different kinds, lengths or prompts, and say in what they differ."""
    first, *others = (_kind(read_manifest(folder)) for folder in folders)
    for folder, other in zip(folders[1:], others, strict=True):
        unequal = [name for name, value in first.items() if other[name] != value]
        if unequal:
            raise BadInput(
                f"students that are averaged must differ in nothing but their weights, but {folder.name} has "
                f"another {' and another '.join(unequal)} than {folders[0].name}. Average students of one "
                "experiment, of several seeds or values."
            )


def _kind(manifest: Mapping[str, Any]) -> dict[str, Any]:
    student = manifest["plan"]["with"]["student"]
    return {
        "student": {**student, "with": {**student["with"], "seed": None}},
        "maximum length": manifest["max_length"],
        "prompt": manifest.get("prompts", {}),
    }


def _cosine(one_ND: FloatArray, other_ND: FloatArray) -> float:
    return float((one_ND * other_ND).sum(axis=1).mean())
