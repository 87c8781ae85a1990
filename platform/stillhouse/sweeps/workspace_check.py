"""The check of a whole workspace: what every command relies on is compared with what was written.

Nothing is changed. The command that needs what is damaged moves it to the quarantine and makes it again.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import CHECKPOINTS, MANIFEST, Workspace, read_json, read_manifest
from stillhouse.core.databases import damage_of_database
from stillhouse.core.errors import BadInput
from stillhouse.core.integrity import CHECKSUMS, MARKER, QUARANTINE, check_checksums, damage_of
from stillhouse.core.json_text import parse_line
from stillhouse.core.notes import EXPORT_NOTE, NOTES, SWEEP_NOTE, SWEEPS, sound_note
from stillhouse.experiments.vocabulary import WordTable
from stillhouse.search.study_backup import STUDIES
from stillhouse.sweeps.stage_export import damage_of_export
from stillhouse.sweeps.test_log import TEST_LOG
from stillhouse.teachers.store import verify_store
from stillhouse.tracking import journal
from stillhouse.tracking.location import ARTIFACTS, sqlite_path, tracking_uri
from stillhouse.training import checkpoint
from stillhouse.training.checkpoint import path_of, steps
from stillhouse.training.facts import FACTS
from stillhouse.training.least_squares import FirstLayer
from stillhouse.training.metrics_log import NAME as LOG
from stillhouse.training.models import stage_of
from stillhouse.values.data import Collection, Examples, Store, TextTable, TokenTable
from stillhouse.values.stage import Stage

KINDS = (
    TextTable.kind,
    TokenTable.kind,
    Store.kind,
    Examples.kind,
    Collection.kind,
    WordTable.kind,
    FirstLayer.kind,
    Stage.kind,
    "checkpoints",
    "notes",
    SWEEPS,
    "exports",
    "MLflow",
    "test log",
    "leftovers",
)
"""What is looked at, in the order of the table."""

_AGAIN = {
    TextTable.kind: "the next command that reads the corpus makes its texts again",
    TokenTable.kind: "the next command that needs them makes the tokens again",
    Store.kind: "the next command that needs them asks the teacher again, for the moved shards alone",
    Examples.kind: "the next command that needs them makes the examples again",
    Collection.kind: "the next command that needs it makes the collection again",
    WordTable.kind: "the next command that needs them writes the word vectors again",
    FirstLayer.kind: "the next training that starts from it fits the layer again",
    Stage.kind: "the command that trained it trains it again",
}
_SWEEP_NOTES = (
    SWEEP_NOTE,
    journal.IDENTITY,
    "test-*.json",
    "teacher-dev*.json",
    "costs.json",
    "confirmed.json",
    "registered.json",
    "card.json",
)
"""What commands keep in a sweep's folder."""


@dataclass(frozen=True)
class Checked:
    """One thing that was looked at.

    Attributes:
        kind: One of `KINDS`.
        path: The file or folder.
        problems: What is wrong with it; empty if nothing is.
        remedy: What becomes of it; of no meaning without problems.
        note: What is worth knowing although it is no problem.
    """

    kind: str
    path: Path
    problems: tuple[str, ...] = ()
    remedy: str = ""
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """The fields."""
        return {**asdict(self), "path": str(self.path), "problems": list(self.problems)}


def verify(root: Path) -> list[Checked]:
    """Check everything in a workspace's folder; return all that was looked at, by kind and name.

    Raises:
        BadInput: There is no such folder, or another version made it.
    """
    if not root.is_dir():
        raise BadInput(f"`verify` needs a workspace, but there is no folder {root}. Give --root.")
    workspace = Workspace(root)
    workspace.check()
    return list(_all(workspace))


def _all(workspace: Workspace) -> Iterator[Checked]:
    root = workspace.root
    for kind in _AGAIN:
        for folder in workspace.listed(kind):
            yield _guarded(kind, folder, partial(_artifact, kind, folder))
    for folder in workspace.listed(Stage.kind):
        if steps(folder) and not (folder / MANIFEST).exists():
            yield _guarded("checkpoints", folder / CHECKPOINTS, partial(_checkpoints, folder))
    notes = [path for room in NOTES for path in sorted(root.glob(f"{room}/*.json"))]
    for path in [root / MARKER, *notes]:
        yield _guarded("notes", path, partial(_note, "notes", path))
    for folder in workspace.listed(SWEEPS):
        yield from _sweep(folder)
    database = sqlite_path(tracking_uri(root))
    if database is not None and database.exists():
        remedy = "it is made anew; each sweep sends its runs again when its command is run again"
        yield _guarded("MLflow", database, partial(_database, "MLflow", database, remedy))
    for sums in sorted((root / ARTIFACTS).rglob(CHECKSUMS)):
        yield _guarded("MLflow", sums.parent, partial(_logged, sums.parent))
    if (root / TEST_LOG).exists():
        remedy = "each of them counts as a use of every test suite"
        yield _guarded("test log", root / TEST_LOG, partial(_lines, "test log", root / TEST_LOG, remedy))
    yield from _leftovers(root)


def _guarded(kind: str, path: Path, look: Callable[[], Checked]) -> Checked:
    """Look at something; what the system refuses to show is a problem, and nothing is done about it."""
    try:
        return look()
    except (OSError, BadInput) as error:
        return Checked(kind, path, (str(error),), "cannot be read, so it stays as it is")


def _artifact(kind: str, folder: Path) -> Checked:
    if not (folder / MANIFEST).exists():
        return Checked(kind, folder, note="unfinished: the command that began it continues it")
    problems = damage_of(folder)
    if kind == Store.kind and not problems:
        problems = verify_store(folder)
    if not problems and kind == Stage.kind:
        problems = list(_lines(kind, folder / LOG, "").problems)
        if (folder / FACTS).exists() and not sound_note(folder / FACTS):
            problems.append(f"{FACTS} is damaged")
    return Checked(kind, folder, tuple(problems), _AGAIN[kind])


def _checkpoints(folder: Path) -> Checked:
    found = {path_of(folder, step): problem for step, problem in checkpoint.problems(folder).items()}
    problems = tuple(f"{path.name} {problem}" for path, problem in found.items() if problem)
    good = [path.stem for path, problem in found.items() if not problem]
    if not problems:
        return Checked("checkpoints", folder / CHECKPOINTS, note=f"training is at {good[-1]}")
    last = f"{good[-1]} or an earlier one" if good else "the start"
    return Checked("checkpoints", folder / CHECKPOINTS, problems, f"training continues from {last}")


def _sweep(folder: Path) -> Iterator[Checked]:
    for name in (*STUDIES, *STUDIES.values()):
        if (folder / name).exists():
            remedy = "the next start takes its backup" if name in STUDIES else "the sweep backs it up again"
            yield _guarded(SWEEPS, folder / name, partial(_database, SWEEPS, folder / name, remedy))
    for path in sorted(path for pattern in _SWEEP_NOTES for path in folder.glob(pattern)):
        yield _guarded(SWEEPS, path, partial(_note, SWEEPS, path))
    log = folder / journal.NAME
    remedy = "what they recorded is missing from MLflow unless it is recorded again"
    yield _guarded(SWEEPS, log, partial(_lines, SWEEPS, log, remedy))
    if (folder / EXPORT_NOTE).exists():
        yield _guarded("exports", folder / "export", partial(_export, folder, Workspace(folder.parents[1])))


def _export(folder: Path, workspace: Workspace) -> Checked:
    note, export = folder / EXPORT_NOTE, folder / "export"
    content = sound_note(note)
    if content is None:
        problems = [f"{note.name} is damaged"]
    else:
        problems = damage_of_export(export, content) if export.is_dir() else ["it is missing"]
    problems = problems or _not_found(folder.name, workspace)
    remedy = "the same sweep command exports the student again"
    return Checked("exports", export, tuple(problems), remedy)


def _not_found(sweep: str, workspace: Workspace) -> list[str]:
    """Look for what a sweep delivered in the way `export NAME` does; say why it is not found."""
    try:
        read_manifest(stage_of(sweep, workspace))
    except BadInput as error:
        return [f"`export {sweep}` fails: {error}"]
    return []


def _logged(folder: Path) -> Checked:
    """Look at a model that was logged to MLflow, which those who serve it fetch from the registry."""
    try:
        check_checksums(folder)
    except BadInput as error:
        remedy = "nothing makes it again: serve the sweep's export, which is checked on its own"
        return Checked("MLflow", folder, (str(error),), remedy)
    return Checked("MLflow", folder)


def _note(kind: str, path: Path) -> Checked:
    read_json(path)
    return Checked(kind, path)


def _database(kind: str, path: Path, remedy: str) -> Checked:
    problem = damage_of_database(path)
    return Checked(kind, path, (problem,) if problem else (), remedy)


def _lines(kind: str, path: Path, remedy: str) -> Checked:
    """Look at a log; a last line that is being written is no problem."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    damaged = sum(line.endswith(b"\n") and parse_line(line) is None for line in lines)
    return Checked(kind, path, (f"{damaged} lines of {path.name} are damaged",) if damaged else (), remedy)


def _leftovers(root: Path) -> Iterator[Checked]:
    """Temporary files, of dead processes if nothing writes to the workspace, and what was put aside."""
    for folder in sorted({path.parent for path in root.rglob(".*.tmp")}):
        count = len(list(folder.glob(".*.tmp")))
        note = f"{count} temporary files of a process that was killed or is running"
        yield Checked("leftovers", folder, note=note)
    aside = [path for path in (root / QUARANTINE).rglob("*") if path.is_file()]
    if aside:
        size = sum(path.stat().st_size for path in aside) / 1e6
        note = f"{len(aside)} damaged files, {size:.1f} MB, that nothing reads"
        yield Checked("leftovers", root / QUARANTINE, note=note)
