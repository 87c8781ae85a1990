"""A sweep, from a corpus to the best student: prepare, search, compare, deliver. The same call resumes it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stillhouse.cluster.slots import Slots
from stillhouse.core.artifacts import Workspace, locked, remove_leftovers
from stillhouse.core.console import doing, say, timed_job, warn
from stillhouse.core.errors import BadInput, refusing
from stillhouse.core.identity import canonical, fingerprint
from stillhouse.core.notes import SWEEP_NOTE, SWEEPS, read_note, write_note
from stillhouse.core.remotes import remote_at
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import Preparation, Prepared
from stillhouse.experiments.sentence_tables import AGREEMENT
from stillhouse.experiments.teacher_weights import is_weight, weighted
from stillhouse.methods import hyper_parameters, load_method
from stillhouse.methods.baselines import MSE, Baseline
from stillhouse.preflight.examination import at_start
from stillhouse.preflight.finding import print_concerns
from stillhouse.preflight.limits import full_bank
from stillhouse.preflight.planned import texts_of
from stillhouse.search.options import LATENCY, SweepOptions
from stillhouse.search.published_sweep import PublishedSweep
from stillhouse.search.study_backup import STUDY, ended_trials, restore_studies
from stillhouse.sweeps.begun import changes_since, search_of, write_experiment
from stillhouse.sweeps.checks import check_rows, warn_of_few_steps
from stillhouse.sweeps.forecast import EMBEDDING, READING, keep_seconds, tested_models
from stillhouse.sweeps.session import session
from stillhouse.values.data import Teacher
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage


def sweep(options: SweepOptions) -> dict[str, Any]:
    """Run or resume a sweep; if all its trials are done, only report it.

    Returns:
        ``student``, ``teacher``, ``baseline``, ``untrained`` and ``trials``, as ``--json`` writes them.

    Raises:
        BadInput: Another command runs this sweep, the sweep of this name has another space or other
            data, a point of the space has a batch larger than the rows that it would train on, or a single
            trial needs more resources than the cluster has.
    """
    with (
        contextlib.ExitStack() as held,
        timed_job() as clock,
        session(
            options.root.resolve(),
            device=options.device,
            local=False,
            address=options.address,
            need=options.need,
            wait_s=options.wait_for_nodes,
            verbose=options.verbose,
            check=lambda: held.enter_context(_checked_folder(options)),
            remote=options.remote,
        ) as (workspace, device),
    ):
        options = options.on(device)
        slots = _slots(options)
        teacher = options.teacher or options.experiment.teacher.finder.resolve()
        _warn_at_start(options, workspace, teacher)
        say("corpus and teacher")
        with doing("preparing the corpus and the teacher"), clock.part(READING):
            data = Preparation(
                options.experiment, workspace, options.embedding, options.refresh, found=teacher
            )
            prepared = data.finish(
                *asked_by(options, data),
                check=lambda setting: _same_sweep(options, _parts(options, setting), early=True),
            )
        clock.add(READING, -prepared.embedding_s)
        clock.add(EMBEDDING, prepared.embedding_s)
        if prepared.summary:
            say(prepared.summary)
        _check_extremes(options, prepared, workspace)
        folder = open_sweep(options, prepared, workspace)
        # Ray Tune, Optuna and MLflow load here: a command that is refused answers before.
        from stillhouse.sweeps.search_and_deliver import search_and_deliver

        cold = not ended_trials(folder / STUDY)
        report = search_and_deliver(options, prepared, workspace, folder, slots, clock)
        if cold:  # Of a sweep that goes on, a part of the work was done before.
            keep_seconds(folder, clock, tested_models(prepared.refit is not None))
        return report


def _warn_at_start(options: SweepOptions, workspace: Workspace, teacher: Teacher) -> None:
    """Say what is wrong with the experiment as far as that costs next to nothing to find out."""
    method = load_method(options.method)
    point = hyper_parameters(method, options.space.any_point, options.preset)
    concerns = at_start(
        method, point, options.experiment, workspace, teacher, device=options.device, trials=options.trials
    )
    print_concerns(concerns)


def _check_extremes(options: SweepOptions, prepared: Prepared, workspace: Workspace) -> None:
    """Refuse a batch larger than the rows, and warn of a full bank, before the sweep is begun."""
    plans = _extremes(options, prepared.setting)
    for plan in plans:
        check_rows(workspace, plan, options.experiment.budget.fraction)
    print_concerns(full_bank(plans, texts_of(prepared.setting)))
    method = load_method(options.method)
    point = hyper_parameters(method, options.space.any_point, options.preset)
    warn_of_few_steps(method, point, prepared.setting)
    if prepared.setting.dev.select == AGREEMENT and any(map(is_weight, options.space.domains)):
        warn(
            "note: trials with different weights of the teachers are selected by agreement with the teachers "
            "at the experiment's own weights, which favours those. Select by a measure of its own, such as "
            "search or stsb (--select)."
        )


def asked_by(options: SweepOptions, data: Preparation) -> list[object]:
    """What a sweep makes of its data: what its plans and suites read, and the vectors of the MSE baseline."""
    baseline: Baseline | None = getattr(load_method(options.method), "BASELINE", MSE)
    by_mse = baseline is not None and baseline.method == MSE.method
    vectors = data.setting.get(Sentences) if by_mse else None
    return [*_extremes(options, data.setting), vectors, data.dev, data.test]


def _extremes(options: SweepOptions, setting: Setting) -> list[Stage]:
    """The plans with every searched value that the method plans."""
    method = load_method(options.method)

    def planned(values: dict[str, Any]) -> Stage:
        point = hyper_parameters(method, values, options.preset)
        return method.plan(point, weighted(setting, values))

    return [planned(values) for values in options.space.probes(refusing(planned))]


def open_sweep(options: SweepOptions, prepared: Prepared, workspace: Workspace) -> Path:
    """Open the sweep's folder.

    Trials may be added to a sweep, so their number is not part of its identity.

    Raises:
        BadInput: The sweep of this name has another space or other data.
    """
    parts = _parts(options, prepared.setting)
    folder = sweep_folder(options)
    remove_leftovers(folder)
    begun = _same_sweep(options, parts)
    write_experiment(options, folder)
    if not begun:
        write_note(folder / SWEEP_NOTE, {"identity": _identity(parts), **parts})
    return folder


@contextlib.contextmanager
def _checked_folder(options: SweepOptions) -> Iterator[None]:
    """Hold the sweep for this command; refuse another search under its name, and heal or fetch its study."""
    folder = sweep_folder(options)
    held = (
        f"a sweep must be run by one command at a time, but another one runs {options.name!r} in "
        f"{options.root}. Wait for it, or give another --name."
    )
    with locked(lock_of_sweep(folder), wait=False, held=held):
        PublishedSweep(Workspace(options.root.resolve(), remote_at(options.remote)), folder).restore()
        check_same_sweep(options)
        restore_studies(folder)
        yield


def lock_of_sweep(folder: Path) -> Path:
    """The lock file of whoever runs the sweep of a folder; a sweep that is refused has no folder yet."""
    return folder.parents[1] / f".sweep-{folder.name}.lock"


def check_same_sweep(options: SweepOptions) -> None:
    """Refuse another search under an existing name, before anything is read or embedded for it."""
    _same_sweep(options, _search_parts(options))


def _same_sweep(options: SweepOptions, parts: dict[str, Any], *, early: bool = False) -> bool:
    """Return whether the sweep was begun with these parts; refused if it was begun with others.

    If ``early``, some data is still to be made and the setting may change: only other fields are refused.
    """
    path = sweep_folder(options) / SWEEP_NOTE
    begun = read_note(path, "")
    if begun is None:
        if (path.parent / STUDY).exists():
            warn(f"{path} is lost: this sweep continues with the data that this command names.")
        return False
    known, identity = begun["identity"], _identity(parts)
    other = [name for name in identity if identity[name] != known.get(name)]
    changes = changes_since(options, begun) if other else ""
    named = changes or "no field does, but the files of the data or the package"
    if other and (changes or not early):
        raise BadInput(
            f"a sweep must be resumed as it was begun, but the {' and the '.join(other)} of sweep "
            f"{options.name!r} differs: {named}. "
            f"Give another --name, or remove {path.parent}."
        )
    return True


def _search_parts(options: SweepOptions) -> dict[str, Any]:
    return {
        "space": canonical(options.space),
        "method": f"{options.method}/{options.preset}",
        "search": search_of(options),
    }


def _parts(options: SweepOptions, setting: Setting) -> dict[str, Any]:
    return {**_search_parts(options), "setting": canonical(setting)}


def _identity(parts: dict[str, Any]) -> dict[str, str]:
    return {name: fingerprint(part) for name, part in parts.items()}


def sweep_folder(options: SweepOptions) -> Path:
    """The folder of a sweep in its workspace."""
    return options.root.resolve() / SWEEPS / options.name


def _slots(options: SweepOptions) -> Slots:
    """How many trials run at once; a single one where its latency is measured."""
    most = min(options.concurrency or options.trials, options.trials)
    return Slots(options.need, 1 if LATENCY in options.objectives else most)
