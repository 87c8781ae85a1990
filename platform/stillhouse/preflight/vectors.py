"""Whether the vectors of stores are those of their texts: some are computed again."""

import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from stillhouse.corpora.tables import sample_of
from stillhouse.preflight.finding import ERROR, NOTE, WARNING, Finding
from stillhouse.preflight.planned import Planned
from stillhouse.students.encoder import Vectors
from stillhouse.teachers.kinds import Embed, kind_of
from stillhouse.teachers.store import joined, open_store
from stillhouse.values.data import Store, TableStore

CHECK = "vectors"
ROWS = 64
"""Rows of a store that are computed again; of an endpoint `ASKED`, which cost money."""
ASKED = 8
FLOOR = 0.98
"""Cosine below which a vector is not that of its text; other machines and precisions give 0.9999 and more."""
_FIRST = 8
"""Texts that are embedded first, to see how long more of them will take."""


class TeacherRun:
    """The teacher, loaded once for all checks; of several, one at a time."""

    def __init__(self, planned: Planned) -> None:
        self._planned = planned
        self._loaded: tuple[object, Callable[[Store], Embed]] | None = None

    def embed(self, store: TableStore, texts: Sequence[str], until: float) -> Vectors:
        """Embed texts as for a store; (n, E).

        A few are embedded in any case, others of the first until a time by `time.perf_counter`.

        Raises:
            BadInput: The teacher cannot be loaded, or its endpoint refuses.
        """
        now, count = time.perf_counter(), len(store.stores)
        ends = [now + (until - now) * (at + 1) / count for at in range(count)]
        each = [self._embed(part, texts, end) for part, end in zip(store.stores, ends, strict=True)]
        embedded = min(map(len, each))
        together = [vectors_NE[:embedded] for vectors_NE in each]
        return joined(together, store.weights) if store.weights else each[0]

    def _embed(self, store: Store, texts: Sequence[str], until: float) -> Vectors:
        embed, parts, first, count = self._embedder(store), [], 0, _FIRST
        while first < len(texts):
            start = time.perf_counter()
            parts.append(embed(texts[first : first + count]))
            # The next part is twice as large, and takes at most about twice as long.
            first, count, now = first + count, 2 * count, time.perf_counter()
            if now + 2 * (now - start) > until:
                break
        return np.concatenate(parts) if parts else np.empty((0, 0), np.float32)

    def _embedder(self, store: Store) -> Embed:
        if self._loaded is None or self._loaded[0] != store.teacher:
            loaded = kind_of(store.teacher.maker).load(store, self._planned.workspace, self._planned.device)
            self._loaded = store.teacher, loaded
        return self._loaded[1](store)


def stored_vectors(planned: Planned, run: TeacherRun, until: float) -> list[Finding]:
    """Compute some rows of every finished store again, and compare them with what the store holds.

    After a time by `time.perf_counter` only a few rows per store are computed.

    Raises:
        BadInput: A store is damaged, or the teacher cannot be loaded.
    """
    findings: list[Finding] = []
    compared: list[str] = []
    lowest = 1.0
    for store in planned.stores:
        known = store.teacher.checkpoint or store.teacher.asked
        if not known or not planned.workspace.finished(store):
            continue
        cosines, rows = _compared(planned, store, run, until)
        wrong = [row for row, cosine in zip(rows, cosines, strict=True) if not cosine >= FLOOR]
        if wrong:
            findings.append(_wrong(store, wrong, cosines))
        compared.append(f"{store.label} ({len(cosines)})")
        lowest = min(lowest, float(cosines.min(initial=1.0)))
    if compared and not any(finding.level != NOTE for finding in findings):
        found = f"rows of {', '.join(compared)}, computed again, agree: lowest cosine {lowest:.4f}."
        findings.append(Finding(CHECK, NOTE, found))
    teachers = planned.teacher.members
    if any(teacher.imported for teacher in teachers):
        findings.append(Finding(CHECK, NOTE, "vectors from files cannot be computed again."))
    if not compared and not all(teacher.imported for teacher in teachers):
        findings.append(Finding(CHECK, NOTE, "no vectors of this teacher are stored yet for these texts."))
    return findings


def endpoint_cosines(planned: Planned, run: TeacherRun) -> list[Finding]:
    """Ask every endpoint for the vectors of a few texts, and tell their dimension and their cosines.

    Raises:
        BadInput: An endpoint refuses.
    """
    asked = [store for store in planned.reading().stores if store.teacher.asked]
    texts = list(dict.fromkeys(planned.texts))[:ASKED]
    return [found for store in asked for found in cosine_scale(run.embed(store, texts, float("inf")))]


def cosine_scale(vectors_NE: Vectors) -> list[Finding]:
    """Tell how large the cosines between the teacher's vectors of different texts are."""
    if len(vectors_NE) < 2:
        return []
    units_NE = vectors_NE / np.maximum(np.linalg.norm(vectors_NE, axis=1, keepdims=True), 1e-12)
    off = (units_NE @ units_NE.T)[~np.eye(len(units_NE), dtype=bool)]
    found = (
        f"the teacher's vectors of {len(units_NE)} different texts have {vectors_NE.shape[1]} dimensions and "
        f"cosines of {off.mean():.2f} ± {off.std():.2f}."
    )
    if off.mean() < _ALIKE:
        return [Finding("cosines", NOTE, found)]
    remedy = (
        "They are nearly all alike: check pooling (teacher.pooling), prompts, and whether the model was "
        "trained to embed texts."
    )
    return [Finding("cosines", WARNING, found, remedy)]


_ALIKE = 0.9
"""Mean cosine of different texts from which on vectors are nearly all alike."""


def _compared(
    planned: Planned, store: Store, run: TeacherRun, until: float
) -> tuple[npt.NDArray[np.float64], list[int]]:
    """Cosines of stored and computed vectors, and the rows."""
    reader = open_store(planned.workspace, store, streamed=True)
    count = ASKED if store.teacher.asked else ROWS
    rows, texts = sample_of(planned.workspace, store.texts, count)
    kept = np.isin(rows, reader.rows)
    rows = [row for row, keep in zip(rows, kept, strict=True) if keep]
    texts = [text for text, keep in zip(texts, kept, strict=True) if keep]
    fresh_NE = run.embed(store, texts, until).astype(np.float64)
    rows = rows[: len(fresh_NE)]
    held_NE = reader.gather(np.array(rows, np.int64)).astype(np.float64)
    if held_NE.shape != fresh_NE.shape:
        return np.zeros(len(rows)), rows
    lengths = np.linalg.norm(held_NE, axis=1) * np.linalg.norm(fresh_NE, axis=1)
    return (held_NE * fresh_NE).sum(axis=1) / np.maximum(lengths, 1e-12), rows


def _wrong(store: Store, wrong: list[int], cosines: npt.NDArray[np.float64]) -> Finding:
    return Finding(
        CHECK,
        ERROR,
        f"the store {store.label}-{store.fingerprint} has vectors that are not those of their texts: "
        f"{len(wrong)} of {len(cosines)} rows, such as row {wrong[0]}, differ from what the teacher gives "
        f"now (median cosine {np.median(cosines):.2f}).",
        f"Remove the folder stores/{store.label}-{store.fingerprint} and embed again; stages that were "
        "trained on it are wrong too.",
    )
