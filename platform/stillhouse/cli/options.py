"""From parsed arguments to our own values, each checked before any work."""

import dataclasses
import json
import os
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.cluster.connection import joins
from stillhouse.cluster.resources import Need
from stillhouse.core.artifacts import default_root
from stillhouse.core.devices import require_device, resolve_device
from stillhouse.core.errors import BadInput, require
from stillhouse.experiments.experiment import Experiment, experiment
from stillhouse.experiments.preparation import Embedding
from stillhouse.experiments.student_kinds import student_spec

if TYPE_CHECKING:
    from stillhouse.methods import Method
    from stillhouse.search.space import Space

_DEFAULT_TRIALS = 8


def settings(pairs: list[str]) -> dict[str, Any]:
    """`--set name=value`, the value read as JSON where it is JSON, else as a string.

    Raises:
        BadInput: No equals sign.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        require(bool(name and equals), "--set takes NAME=VALUE", given=pair)
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


def fixed_of(options: Namespace, method: "Method") -> dict[str, Any]:
    """What `--set` fixes, in the types that the method declares."""
    from stillhouse.methods import check_names
    from stillhouse.search.domains import frozen
    from stillhouse.search.type_casts import cast_point

    given = {name: frozen(value) for name, value in settings(options.set).items()}
    check_names(method, given)
    return cast_point(given, method.HyperParameters, "command line", "--set")


def space_of(options: Namespace, method: "Method") -> "Space":
    """The search space, checked, without what `--set` fixes and what early stopping rules out."""
    from stillhouse.search.samplers import check_sampler
    from stillhouse.search.schedulers import load_scheduler
    from stillhouse.search.space import check, load_space
    from stillhouse.sweeps.sweep import default_space

    known = [field.name for field in dataclasses.fields(Experiment)]
    path = options.space or default_space(options.method)
    space = load_space(path, space=_section(options, path), allowed_experiment_keys=known)
    require(
        space.method == options.method,
        "the search space is for this method",
        method=options.method,
        space=space.method,
    )
    fixed = fixed_of(options, method)
    load_scheduler(options.scheduler)
    left_out = () if options.scheduler == "none" else ("distil_epochs",)
    space = check(space.without(*fixed, *left_out), method.HyperParameters)
    space = dataclasses.replace(space, fixed={**space.fixed, **fixed})
    check_sampler(options.sampler, space)
    return space


def probe_all(
    options: Namespace, method: "Method", points: Iterable[dict[str, Any]], wanted: Experiment
) -> None:
    """Refuse missing data, a model, a layer or a hyper-parameter that cannot be, before any work."""
    from stillhouse.corpora.published.glue import TASKS, resolve_task
    from stillhouse.corpora.wordnet import wordnet_files
    from stillhouse.evaluation.crosslingual_sts import resolve_crosslingual_sts
    from stillhouse.evaluation.sts import resolve_sts
    from stillhouse.experiments.augmented import check_augmentation
    from stillhouse.experiments.claim_data import cross_encoder_of, fever_files
    from stillhouse.experiments.fractions import check_fraction
    from stillhouse.experiments.task_data import task_name
    from stillhouse.methods import check_data, hyper_parameters, placeholder, placeholder_task, probe
    from stillhouse.students.backbone import layer_count
    from stillhouse.teachers.weights import resolve_model

    labelled = wanted.finetune_budget and (wanted.labelled or (wanted.corpus == "pydocs" and wanted.pairs))
    check_data(
        method,
        ("query", "passage") if labelled else (),
        parallel=bool(wanted.parallel),
        words=bool(wanted.words or wanted.task or wanted.claims),
        task=bool(wanted.task and wanted.finetune_budget),
        claims=bool(wanted.claims),
    )
    if wanted.select == "stsb" and wanted.parallel:
        resolve_crosslingual_sts(wanted.data_root, "stsb", "dev")
    elif wanted.select == "stsb":
        resolve_sts(wanted.data_root, "dev", ("STSB",))
    if wanted.claims:
        fever_files(wanted.claims)
    cross_encoder, task = cross_encoder_of(wanted), None
    if wanted.task:
        known = TASKS[resolve_task(task_name(wanted.task), wanted.task_root, "train").task]
        task = placeholder_task(
            pair=bool(known.second), classes=len(known.labels), augmented=bool(wanted.wordnet)
        )
    if wanted.wordnet:
        wordnet_files(wanted.wordnet)
    check_augmentation(wanted)
    teacher = resolve_model(wanted.teacher)
    student = student_spec(wanted, teacher)
    layers = layer_count(student.kwargs["base"])
    planned = task if wanted.finetune_budget else None
    setting = placeholder(labelled=bool(labelled), task=planned, student=student, cross_encoder=cross_encoder)
    for values in points:
        hp = hyper_parameters(method, values, options.preset)
        probe(method, hp, layers=layers, setting=setting)
        check_fraction(method, hp, setting, wanted)
        if hasattr(method, "check"):
            method.check(hp, student, teacher)


def trials_of(options: Namespace, space: "Space") -> int:
    """How many were asked for, or eight; a grid is never run without saying how much of it."""
    if options.trials is not None:
        return int(options.trials)
    if options.sampler == "grid":
        raise BadInput(
            f"a grid wants a limit, and this one has {space.grid_size():,} points. Give --trials NUMBER."
        )
    return _DEFAULT_TRIALS


def experiment_of(options: Namespace, from_file: dict[str, Any]) -> Experiment:
    """What all trials share: the flags before the file before the environment before the defaults."""
    given = {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(Experiment)
        if getattr(options, field.name, None) is not None
    }
    if str(given.get("layers", "")).startswith("["):
        given["layers"] = _layers(given["layers"])
    return experiment({**_data_root(), **from_file, **given})


def fractions_of(options: Namespace) -> tuple[float, ...]:
    """The shares that ``--fractions`` lists; none where it is not given.

    Raises:
        BadInput: A share that is no number, out of range or listed twice, or ``--fraction`` beside it.
    """
    if options.fractions is None:
        return ()
    remedy = "Such as --fractions 1,0.3,0.1."
    require(options.fraction is None, "--fractions takes the place of --fraction", fraction=options.fraction)
    try:
        shares = tuple(float(part) for part in options.fractions.split(","))
    except ValueError:
        shares = ()
    good = bool(shares) and all(0 < share <= 1 for share in shares) and len(set(shares)) == len(shares)
    require(good, "--fractions lists different numbers in (0, 1]", fractions=options.fractions, remedy=remedy)
    return shares


def need_of(options: Namespace) -> Need:
    """What one trial takes."""
    return Need(options.workers, options.cpus_per_worker, options.gpus_per_worker)


def embedding_of(options: Namespace, device: str, *, local: bool) -> Embedding:
    """Where the teacher runs."""
    return Embedding(actors=options.actors, threads=1, local=local, device=device)


def device_of(options: Namespace) -> str:
    """The device of the work. A driver that joins a cluster asks the cluster for the best."""
    if not getattr(options, "local", False) and joins(options.address):
        return str(options.device)
    device = resolve_device(options.device)
    require_device(device)
    return device


def root_of(options: Namespace) -> Path:
    """The workspace's folder."""
    return (options.root or default_root()).resolve()


def _section(options: Namespace, path: Path | str) -> str:
    """The grid for the grid sampler, the continuous version for the others where the file has one."""
    if options.section:
        return str(options.section)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the search space must be a readable file, but {path}: {error}.") from None
    return "continuous" if options.sampler != "grid" and "\ncontinuous:" in text else "space"


def _data_root() -> dict[str, str]:
    """``$STILLHOUSE_DATA`` where it has STS sets to select by and to test on; it may serve other things."""
    from stillhouse.evaluation.sts import sts_sets

    root = os.environ.get("STILLHOUSE_DATA", "")
    has = bool(root) and all(sts_sets(root, split) for split in ("dev", "test"))
    return {"data_root": root} if has else {}


def _layers(text: str) -> tuple[int, ...]:
    try:
        listed = json.loads(text)
    except ValueError:
        listed = None
    whole = isinstance(listed, list) and all(type(layer) is int for layer in listed)
    require(whole, "--layers is a rule, or a list of whole numbers such as [0,2,4]", layers=text)
    return tuple(listed or ())
