"""A sweep as an experiment: the file that it was begun with, which later commands take and change."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import read_json, write_atomically
from stillhouse.core.console import say
from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.core.notes import EXPORT_NOTE, SWEEP_NOTE, SWEEPS, read_note, room_of, sound_note
from stillhouse.core.redaction import redacted_json
from stillhouse.experiments.data_kind import data_kinds
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import as_file, differences, experiment_of, merged, stated
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.methods import known_methods
from stillhouse.search.domains import as_given, frozen
from stillhouse.search.experiment_file import load_base, load_search, yaml_of
from stillhouse.search.options import SweepOptions
from stillhouse.search.space import Space

EXPERIMENT = "experiment.yaml"
"""Name of the experiment file in a sweep's folder."""
_FILES = ("sentences.corpus", "sentences.sources", "pairs.path")
_INTRODUCTION = (
    "# What this sweep was begun with. `stillhouse fields` explains the fields; the others have defaults.\n"
)


def write_experiment(options: SweepOptions, folder: Path) -> None:
    """Write the experiment file of a sweep into its folder."""
    space = options.space
    domains = {name: as_given(domain) for name, domain in space.domains.items()}
    seeded = {key: dict(point) for key in ("first", "second") if (point := getattr(space, key))}
    content = {
        "method": options.method,
        "preset": options.preset,
        **({"values": dict(space.fixed)} if space.fixed else {}),
        **as_file(options.experiment),
        "search": {**seeded, space.section: domains},
    }
    text = yaml_of(redacted_json(content))
    write_atomically(folder / EXPERIMENT, f"{_INTRODUCTION}{text}".encode())


def sweep_file(name: str, root: Path) -> Path | None:
    """The experiment file of a sweep of the workspace; None where there is no such sweep, or no file."""
    file = root / SWEEPS / name / EXPERIMENT
    return file if Path(name).name == name and room_of(file.parent) == SWEEPS and file.exists() else None


def sweep_of_model(model: str, root: Path) -> Path | None:
    """The experiment file of the sweep that a model's name, its folder or its export stands for, if any."""
    path = Path(os.path.abspath(Path(model).expanduser()))
    path = path.parent if path.name == "export" else path
    return sweep_file(path.name if path.parent.resolve() == root / SWEEPS else model, root)


def teacher_in_sweep(file: Path, experiment: Experiment, *, final: bool) -> dict[str, float]:
    """The teacher's figures that a sweep has measured on dev, or on the test split if ``final``.

    There are none of another experiment than the sweep's.
    """
    if experiment_of(load_base(file).experiment) != experiment:
        return {}
    if not final:
        notes = map(sound_note, sorted(file.parent.glob("teacher-dev*.json")))
        return next((note for note in notes if note), {})
    report = file.with_name("report.json")
    teacher = read_json(report).get("teacher") if report.exists() else None
    return dict(teacher["metrics"]) if teacher else {}


def ended_sweep(name: str, root: Path) -> Path:
    """Find the experiment file of a sweep that has ended, for `--like`.

    Raises:
        BadInput: There is no such sweep, it has not delivered a student, or another version began it.
    """
    folder = root / SWEEPS / name
    if Path(name).name != name or room_of(folder) != SWEEPS:
        sweeps = _sweeps(root)
        near = nearest(name, sweeps) if sweeps else "Run the sweep first, or give --root."
        raise BadInput(f"--like must name a sweep of the workspace, but {root} has no {name!r}. {near}")
    file = folder / EXPERIMENT
    require(
        file.exists(),
        f"--like must name a sweep with a file {EXPERIMENT}",
        sweep=name,
        remedy="Another version of stillhouse began it. Run the sweep again with this one.",
    )
    require(
        (folder / EXPORT_NOTE).exists(),
        "--like must name a sweep that has delivered its student",
        sweep=name,
        remedy="Run the same `stillhouse sweep` again, which resumes it.",
    )
    return file


def check_method_or_sweep(name: str, root: Path) -> None:
    """Refuse a METHOD that is neither a method nor a sweep of the workspace.

    Raises:
        BadInput: It is neither; the near ones of both are listed.
    """
    sweeps = _sweeps(root)
    if sweeps and name not in known_methods():
        known = sorted({*known_methods(), *sweeps})
        raise BadInput(f"unknown method or sweep {name!r}. {nearest(name, known)}")


def fields_in_sweep(file: Path, changes: Iterable[str]) -> dict[str, Any]:
    """The fields of a sweep's experiment, without those of data that is replaced by the paths that change."""
    found: dict[str, Any] = dict(load_base(file).experiment)
    sources = {key for key, kind in data_kinds().items() if kind.is_source}
    changed = set(changes)
    named = sources & {path.partition(".")[0] for path in changed}
    if named and not named & {experiment_of(found).source.key}:
        return {key: value for key, value in found.items() if key not in data_kinds()}
    for path in _FILES:
        kind = path.partition(".")[0]
        if path in changed and "count" in found.get(kind, {}):  # How many rows of another file is not said.
            found[kind] = {name: value for name, value in found[kind].items() if name != "count"}
    return found


def experiment_like(file: Path, changes: Mapping[str, Any]) -> Experiment:
    """The experiment of a sweep's file with fields changed, by their paths, which is said in a line."""
    experiment = experiment_of(merged(fields_in_sweep(file, changes), changes))
    say(as_sweep(file.parent.name, experiment))
    return experiment


def as_sweep(name: str, experiment: Experiment) -> str:
    """Say whose experiment is taken: ``as sweep ibkd: 64 tokens, 1 negative, 20,480 sentences``."""
    counts: dict[str, Any] = {"token": experiment.max_length}
    if (pairs := experiment.get(Pairs)) is not None:
        counts["negative"] = pairs.number_mined
    if (sentences := experiment.get(Sentences)) is not None:
        counts["sentence"] = sentences.stated_rows
    said = [f"{count:,} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items() if count]
    return f"as sweep {name}: {', '.join(said) or 'the same experiment'}"


def changes_since(options: SweepOptions, begun: Mapping[str, Any]) -> str:
    """Name the fields that differ from those in the note of a sweep, with their values then and now."""
    file = options.root.resolve() / SWEEPS / options.name / EXPERIMENT
    now = {"method": f"{options.method}/{options.preset}", **_named(search_of(options))}
    then = {"method": begun["method"], **_named(begun["search"])}
    found = [f"{name} {then[name]} → {now[name]}" for name in now if then[name] != now[name]]
    if file.exists():
        base = load_base(file)
        found += _changed_space(options.space, base.values, load_search(file))
        found.append(differences(stated(experiment_of(base.experiment)), stated(options.experiment)))
    return ", ".join(filter(None, found))


def search_in_sweep(file: Path) -> dict[str, Any]:
    """Return a sweep's sampler, objectives, scheduler, and number of trials that are never stopped early."""
    note = read_note(file.with_name(SWEEP_NOTE), "")
    return {} if note is None else _named(note["search"])


def search_of(options: SweepOptions) -> list[Any]:
    """Return the options of a sweep's search, as its note states them."""
    return [options.sampler, list(options.objectives), options.scheduler, options.full]


def _named(search: list[Any]) -> dict[str, Any]:
    sampler, objectives, scheduler, full = search
    return {"sampler": sampler, "objectives": tuple(objectives), "scheduler": scheduler, "full": full}


def _changed_space(space: Space, values: Mapping[str, Any], search: Mapping[str, Any]) -> list[str]:
    """Hyper-parameters whose domain or fixed value differs from those of a file, then and now."""
    sections = [search.get(section) or {} for section in ("space", "continuous")]
    then = {name: frozen(given) for part in (values, *sections) for name, given in part.items()}
    domains = {name: as_given(domain) for name, domain in space.domains.items()}
    now = {name: frozen(given) for name, given in {**space.fixed, **domains}.items()}
    return [
        f"{name} {then.get(name, 'not searched')} → {now.get(name, 'not searched')}"
        for name in {**then, **now}
        if then.get(name, ...) != now.get(name, ...)
    ]


def _sweeps(root: Path) -> list[str]:
    return sorted(each.name for each in (root / SWEEPS).glob("*") if room_of(each) == SWEEPS)
