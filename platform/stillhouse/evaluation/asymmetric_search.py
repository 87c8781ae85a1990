"""Asymmetric search: one model embeds the documents, once, and another the queries.

Both live in one space, so the cosine of a query with a document means the same whichever of the two made it.
"""

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from stillhouse.core.artifacts import Workspace, lock_of, locked, whole_array, write_array
from stillhouse.core.errors import BadInput, require
from stillhouse.core.roles import DOCUMENT, PLAIN, QUERY
from stillhouse.core.types import Encoder, FloatArray, InRoles, encode_as
from stillhouse.evaluation.items import Figures
from stillhouse.evaluation.search.passage_vectors import FOLDER


class KeptDocuments:
    """Encodes documents with a model, and keeps the vectors: what is asked for again is read from the disk.

    Vectors are kept by block, in one file per call, since a model may round differently in another batch. The
    identity says all that determines the model's vectors. ``encoded`` counts the documents that the model has
    encoded, without those that were read.
    """

    def __init__(self, model: Encoder, identity: str, workspace: Workspace) -> None:
        self.model, self.identity = model, identity
        name = hashlib.sha256(identity.encode()).hexdigest()[:16]
        self.folder = workspace.root / FOLDER / f"documents-{name}"
        self.encoded = 0

    def encode_document(self, texts: Sequence[str]) -> FloatArray:
        """Encode documents as vectors, (N, D), in their order."""
        hashed = hashlib.sha256()
        for text in texts:
            # The length tells texts apart that are cut differently.
            hashed.update(f"{len(text)} {text}".encode())
        path = self.folder / f"{hashed.hexdigest()[:32]}.npy"
        with locked(lock_of(self.folder)):
            kept: FloatArray | None = whole_array(path)
            if kept is not None:
                return kept
            vectors_ND = np.asarray(encode_as(self.model, DOCUMENT, texts), np.float32)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_array(path, vectors_ND)
            self.encoded += len(texts)
            return vectors_ND

    def remove(self) -> None:
        """Remove the vectors from the disk."""
        with locked(lock_of(self.folder)):
            shutil.rmtree(self.folder, ignore_errors=True)


class AsymmetricEncoder(InRoles):
    """Queries by one model, documents by another."""

    def __init__(self, queries: Encoder, documents: KeptDocuments) -> None:
        self.queries, self.documents = queries, documents

    def encoded(self, role: str, texts: Sequence[str]) -> FloatArray:
        """Encode texts of a role as vectors, (N, D), in their order.

        Raises:
            BadInput: They have no role: neither model is meant for them.
        """
        if role == PLAIN:
            raise BadInput(
                "asymmetric search encodes queries and documents, but was given texts without a role. Leave "
                "--documents-by out for this suite."
            )
        if role == QUERY:
            return encode_as(self.queries, QUERY, texts)
        return self.documents.encode_document(texts)


def require_one_dimension(queries: Encoder, documents: Encoder) -> None:
    """Refuse two models whose vectors cannot be compared.

    Raises:
        BadInput: Their dimensions differ.
    """
    ours, theirs = (
        encode_as(model, role, ["dimension"]).shape[1]
        for model, role in ((queries, QUERY), (documents, DOCUMENT))
    )
    require(
        ours == theirs,
        "asymmetric search needs queries and documents of one dimension: those must be equal",
        queries=ours,
        documents=theirs,
        remedy="Train the student with keep_projection=true, which gives it its teacher's dimension.",
    )


@dataclass(frozen=True)
class Beside:
    """A figure of the teacher, of the student, and of the student's queries among the teacher's documents."""

    teacher: float
    symmetric: float
    asymmetric: float

    @property
    def symmetric_share(self) -> float | None:
        """Share of the teacher's figure that the student keeps alone; None if the teacher has 0."""
        return self.symmetric / self.teacher if self.teacher else None

    @property
    def asymmetric_share(self) -> float | None:
        """Share of the teacher's figure that the student's queries keep; None if the teacher has 0."""
        return self.asymmetric / self.teacher if self.teacher else None

    def report(self) -> dict[str, float | None]:
        """The figures and the shares, as `--json` writes them."""
        shares = {"symmetric_share": self.symmetric_share, "asymmetric_share": self.asymmetric_share}
        return {**asdict(self), **shares}


def beside(
    teacher: Figures, symmetric: Figures, asymmetric: Figures, names: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, Beside]]:
    """Put the figures of three measurements side by side, those in ``names`` of each set."""
    return {
        found: {
            name: Beside(teacher[found][name], symmetric[found][name], asymmetric[found][name])
            for name in figures
        }
        for found, figures in names.items()
        if figures
    }
