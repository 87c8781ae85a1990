"""The check of a whole workspace: what every command relies on is compared with what was written.

Nothing is changed unless it is to be repaired: then what can be made again is moved to the quarantine, and
the command that needs it makes it; what cannot is replaced by its newest good copy.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import (
    CHECKPOINTS,
    LOCK,
    MANIFEST,
    Workspace,
    locked,
    read_manifest,
    remove_leftovers,
    seal_holds,
)
from stillhouse.core.databases import copies_of, damage_of_database, is_good_copy, newest_copy
from stillhouse.core.errors import BadInput
from stillhouse.core.integrity import MARKER, QUARANTINE, damaged_files, put_aside
from stillhouse.core.notes import (
    EXPORT_NOTE,
    STAGE_NOTE,
    SWEEP_NOTE,
    SWEEPS,
    copy_of,
    is_sound,
    read_note_twice,
    sound_note,
)
from stillhouse.evaluation.search import passage_vectors
from stillhouse.experiments.vocabulary import WordTable
from stillhouse.search.study_copies import STUDY, damage_of_study, heal_study
from stillhouse.sweeps.export import damage_of_export
from stillhouse.sweeps.test_log import TEST_LOG, mend_test_log, suite_in
from stillhouse.teachers.store import verify_store
from stillhouse.tracking import journal
from stillhouse.tracking.journal import trial_states
from stillhouse.tracking.location import mend, sqlite_path, tracking_uri
from stillhouse.training import checkpoint, metrics_log
from stillhouse.training.checkpoint import path_of, steps
from stillhouse.training.facts import FACTS
from stillhouse.training.metrics_log import NAME as LOG
from stillhouse.training.models import stage_of
from stillhouse.training.plan_file import damage_of_plan, mend_plan
from stillhouse.values.data import Collection, Examples, Store, TextTable, TokenTable
from stillhouse.values.stage import Stage

KINDS = (
    TextTable.kind,
    TokenTable.kind,
    Store.kind,
    Examples.kind,
    Collection.kind,
    WordTable.kind,
    Stage.kind,
    "checkpoints",
    passage_vectors.FOLDER,
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
    Stage.kind: "the command that trained it trains it again",
}
_FINAL = "cannot be mended"
_NOTES = ("test-*.json", "teacher-dev*.json", "costs.json", "confirmed.json", "registered.json", "card.json")
"""What commands keep in a sweep's folder and can make again."""


@dataclass(frozen=True)
class Checked:
    """One thing that was looked at.

    Attributes:
        kind: One of `KINDS`.
        path: The file or folder.
        problems: What is wrong with it; empty if nothing is.
        cost: What mending it costs, or why it cannot be mended; of no meaning without problems.
        mended: Whether it has been mended.
        note: What is worth knowing although it is no problem.
        mend: What mends it; None if nothing can.
    """

    kind: str
    path: Path
    problems: tuple[str, ...] = ()
    cost: str = ""
    mended: bool = False
    note: str = ""
    mend: Callable[[], object] | None = field(default=None, repr=False, compare=False)

    @property
    def wrong(self) -> bool:
        """Whether there is a problem that has not been mended."""
        return bool(self.problems) and not self.mended

    def as_json(self) -> dict[str, Any]:
        """The fields, without the function."""
        return {
            "kind": self.kind,
            "path": str(self.path),
            "problems": list(self.problems),
            "cost": self.cost,
            "mended": self.mended,
            "note": self.note,
        }


def verify(root: Path, *, repair: bool = False) -> list[Checked]:
    """Check everything in a workspace, and mend what can be mended if asked to.

    Args:
        root: The workspace's folder.
        repair: Whether to mend; nothing else may write to the workspace then.

    Returns:
        Everything that was looked at, by kind and name.

    Raises:
        BadInput: There is no such folder, another version made it, or it is to be repaired and a run is going
            on, or it cannot be written.
    """
    if not root.is_dir():
        raise BadInput(f"`verify` needs a workspace, but there is no folder {root}. Give --root.")
    workspace = Workspace(root)
    workspace.check()
    if not repair:
        return list(_all(workspace))
    held = f"{root} must have no writer while it is repaired, but a run is going on there. Wait for it."
    with locked(root / LOCK, wait=False, held=held):
        return [_mended(checked) for checked in _all(workspace)]


def _mended(checked: Checked) -> Checked:
    if checked.mend is None:
        return checked
    checked.mend()
    return replace(checked, mended=bool(checked.problems))


def _all(workspace: Workspace) -> Iterator[Checked]:
    root = workspace.root
    for kind in _AGAIN:
        for folder in workspace.listed(kind):
            yield _guarded(kind, folder, partial(_artifact, kind, folder))
    for folder in workspace.listed(Stage.kind):
        if steps(folder) and not (folder / MANIFEST).exists():
            yield _guarded("checkpoints", folder / CHECKPOINTS, partial(_checkpoints, folder))
    yield _guarded("notes", root / MARKER, partial(_marker, workspace))
    for folder in workspace.listed(passage_vectors.FOLDER):
        yield _guarded(passage_vectors.FOLDER, folder, partial(_passage_vectors, folder))
    for path in sorted([*root.glob("sources/*.json"), *root.glob("experiments/*.json")]):
        yield _guarded("notes", path, partial(_note, "notes", path))
    for folder in workspace.listed(SWEEPS):
        yield from _sweep(folder)
    uri = tracking_uri(root)
    database = sqlite_path(uri)
    if database is not None and database.exists():
        yield _guarded("MLflow", database, partial(_mlflow, database, uri))
    if (root / TEST_LOG).exists():
        yield _guarded("test log", root / TEST_LOG, partial(_test_log, root / TEST_LOG))
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
    files = damaged_files(folder)
    problems = [f"{file} {problem}" for file, problem in files.items()]
    if kind == Store.kind and not problems:
        problems = verify_store(folder)
    if problems:
        mend = partial(_put_aside, [folder / file for file in files or (MANIFEST,)])
        return Checked(kind, folder, tuple(problems), _AGAIN[kind], mend=mend)
    return _descriptions(folder) if kind == Stage.kind else Checked(kind, folder)


def _descriptions(folder: Path) -> Checked:
    """Look at what describes a finished stage and is left out of its manifest, as it decides no result."""
    plan, lines = damage_of_plan(folder), metrics_log.damaged_lines(folder / LOG)
    facts = (folder / FACTS).exists() and not is_sound(folder / FACTS)
    found = {
        f"{STAGE_NOTE} {plan}": ("it is written again from the manifest", plan),
        f"{FACTS} is damaged": ("the command that trained it writes it again, and trains nothing", facts),
        f"{lines} lines of {LOG} are damaged": ("its curves lack these points", lines),
    }
    costs = {problem: cost for problem, (cost, wrong) in found.items() if wrong}
    mend = partial(_mend_descriptions, folder) if costs else None
    return Checked(Stage.kind, folder, tuple(costs), "; ".join(costs.values()), mend=mend)


def _mend_descriptions(folder: Path) -> None:
    mend_plan(folder)
    if (folder / FACTS).exists() and not is_sound(folder / FACTS):
        put_aside(folder / FACTS, alone=True)
    if metrics_log.damaged_lines(folder / LOG):
        metrics_log.leave_out_damaged(folder / LOG)


def _checkpoints(folder: Path) -> Checked:
    found = {path_of(folder, step): problem for step, problem in checkpoint.problems(folder).items()}
    problems = tuple(f"{path.name} {problem}" for path, problem in found.items() if problem)
    good = [path.stem for path, problem in found.items() if not problem]
    last = f"{good[-1]} or an earlier one" if good else "the start"
    if not problems:
        return Checked("checkpoints", folder / CHECKPOINTS, note=f"training is at {good[-1]}")
    cost = f"training continues from {last}"
    mend = partial(checkpoint.heal, folder)
    return Checked("checkpoints", folder / CHECKPOINTS, problems, cost, mend=mend)


def _marker(workspace: Workspace) -> Checked:
    path = workspace.root / MARKER
    # An older version wrote no copy: the next command does.
    files = [name for name in workspace.unmarked() if name == MARKER or (workspace.root / name).exists()]
    if not files or not any(workspace.root.glob("workspace*.json")):
        return Checked("notes", path)
    problems = tuple(f"{name} is missing or damaged" for name in files)
    return Checked(
        "notes", path, problems, "the format of the workspace is written again", mend=workspace.mark
    )


def _passage_vectors(folder: Path) -> Checked:
    damaged = [path for path in passage_vectors.parts(folder) if not seal_holds(path)]
    if not damaged:
        return Checked(passage_vectors.FOLDER, folder)
    problems = tuple(f"{path.name} was altered" for path in damaged)
    cost = "the next evaluation encodes the passages of these parts again"
    mend = partial(_put_aside, damaged)
    return Checked(passage_vectors.FOLDER, folder, problems, cost, mend=mend)


def _sweep(folder: Path) -> Iterator[Checked]:
    yield _guarded(SWEEPS, folder / STUDY, partial(_study, folder))
    for path in (folder / SWEEP_NOTE, folder / journal.IDENTITY):
        if path.exists() or copy_of(path).exists():
            yield _guarded(SWEEPS, path, partial(_note_twice, path))
    for path in sorted(path for pattern in _NOTES for path in folder.glob(pattern)):
        yield _guarded(SWEEPS, path, partial(_note, SWEEPS, path))
    log = folder / journal.NAME
    if log.exists() or copy_of(log).exists():
        yield _guarded(SWEEPS, log, partial(_journal, folder))
    if (folder / EXPORT_NOTE).exists():
        yield _guarded("exports", folder / "export", partial(_export, folder, Workspace(folder.parents[1])))


def _study(folder: Path) -> Checked:
    path = folder / STUDY
    altered = [copy for copy in copies_of(path) if not is_good_copy(copy)]
    newest = newest_copy(path)
    if path.exists():
        problem = damage_of_study(path)
    else:
        problem = "is missing" if newest is not None or trial_states(folder) else ""
    if problem and newest is None:
        return Checked(SWEEPS, path, (problem,), f"{_FINAL}: it has no good copy")
    if problem:
        cost = f"{newest.name} is taken; trials that it does not know as finished run again" if newest else ""
        return Checked(SWEEPS, path, (problem,), cost, mend=partial(heal_study, folder))
    if altered:
        problems = tuple(f"its copy {copy.name} was altered" for copy in altered)
        return Checked(SWEEPS, path, problems, "the sweep copies it again", mend=partial(_put_aside, altered))
    return Checked(SWEEPS, path, note="" if path.exists() else "no trial has begun")


def _journal(folder: Path) -> Checked:
    path, (taken, lost) = folder / journal.NAME, journal.damaged_lines(folder)
    found = {
        f"{taken} of its lines are damaged or missing": ("its copy has them", taken),
        f"{lost} of its lines are damaged, also in its copy": (
            "they are left out: what they recorded is missing from MLflow unless it is recorded again",
            lost,
        ),
    }
    costs = {problem: cost for problem, (cost, count) in found.items() if count}
    mend = partial(journal.mend, folder) if costs else None
    return Checked(SWEEPS, path, tuple(costs), "; ".join(costs.values()), mend=mend)


def _export(folder: Path, workspace: Workspace) -> Checked:
    note, export = folder / EXPORT_NOTE, folder / "export"
    content = sound_note(note)
    if content is None:
        problems = [f"{note.name} is damaged"]
    else:
        problems = damage_of_export(export, content) if export.is_dir() else ["it is missing"]
    if not problems:
        problems = _not_found(folder.name, workspace)
    if not problems:
        return Checked("exports", export)
    cost = "the same sweep command exports the student again"
    return Checked("exports", export, tuple(problems), cost, mend=partial(_put_aside, [note]))


def _not_found(sweep: str, workspace: Workspace) -> list[str]:
    """Look for what a sweep delivered in the way `export NAME` does; say why it is not found."""
    try:
        read_manifest(stage_of(sweep, workspace))
    except BadInput as error:
        return [f"`export {sweep}` fails: {error}"]
    return []


def _note(kind: str, path: Path) -> Checked:
    if is_sound(path):
        return Checked(kind, path)
    cost = "the next command that needs it makes it again"
    return Checked(kind, path, ("is damaged",), cost, mend=partial(_put_aside, [path]))


def _note_twice(path: Path) -> Checked:
    damaged = [file.name for file in (path, copy_of(path)) if file.exists() and not is_sound(file)]
    if len(damaged) == 2 or (damaged and not (path.exists() and copy_of(path).exists())):
        return Checked(SWEEPS, path, ("is damaged, and so is its copy",), _FINAL)
    if damaged:
        mend = partial(read_note_twice, path)
        return Checked(SWEEPS, path, (f"{damaged[0]} is damaged",), "the other copy is taken", mend=mend)
    return Checked(SWEEPS, path)


def _mlflow(path: Path, uri: str) -> Checked:
    problem = damage_of_database(path)
    if not problem:
        return Checked("MLflow", path)
    copy = newest_copy(path)
    taken = "it is made anew" if copy is None else f"{copy.name} is taken"
    cost = f"{taken}; each sweep sends its runs again when its command is run again"
    return Checked("MLflow", path, (problem,), cost, mend=partial(mend, uri))


def _test_log(path: Path) -> Checked:
    count = sum(suite_in(line) is None for line in path.read_bytes().splitlines())
    if not count:
        return Checked("test log", path)
    cost = "each of them counts as a use of every test suite from now on"
    mend = partial(mend_test_log, path)
    return Checked("test log", path, (f"{count} of its lines are damaged",), cost, mend=mend)


def _leftovers(root: Path) -> Iterator[Checked]:
    """Temporary files, of dead processes if nothing writes to the workspace, and what was put aside."""
    for folder in sorted({path.parent for path in root.rglob(".*.tmp")}):
        count = len(list(folder.glob(".*.tmp")))
        note = f"{count} temporary files of a process that was killed or is running; --repair removes them"
        yield Checked("leftovers", folder, note=note, mend=partial(remove_leftovers, folder))
    aside = [path for path in (root / QUARANTINE).rglob("*") if path.is_file()]
    if aside:
        size = sum(path.stat().st_size for path in aside) / 1e6
        note = f"{len(aside)} damaged files, {size:.1f} MB, that nothing reads"
        yield Checked("leftovers", root / QUARANTINE, note=note)


def _put_aside(paths: Iterable[Path]) -> None:
    for path in paths:
        put_aside(path)
        if path.exists():
            raise BadInput(f"{path} is damaged and must be moved, but its folder cannot be written.")
