"""From parsed arguments to our own values, each checked before any work."""

import glob
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillhouse.cli.arguments import FLAGS
from stillhouse.core.artifacts import root_folder
from stillhouse.core.cache import limit_to
from stillhouse.core.errors import BadInput, require
from stillhouse.core.json_text import parse_json
from stillhouse.core.remotes import default_remote
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import experiment_of, flattened, merged, opts_out, with_file
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.search.keywords import Resources

_TEACHERS = '[{"name": "all-MiniLM-L6-v2"}, {"vectors": "files/*.parquet", "weight": 0.5}]'
_SOURCES = '[{"corpus": "texts.txt", "share": 0.7}, {"corpus": "queries.txt", "share": 0.3, "role": "query"}]'

_PYTHON = {"True": True, "False": False, "None": None}
"""Values as Python writes them."""


def settings(pairs: list[str]) -> dict[str, Any]:
    """The values of `--set NAME=VALUE`, each read as JSON where it is JSON, otherwise as a string.

    Raises:
        BadInput: No equals sign, or a name that is given twice.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        fits = bool(equals) and bool(name) and name == name.strip()
        require(fits, "--set must be followed by NAME=VALUE, without blanks", given=pair)
        remedy = "Leave out all but one."
        require(name not in values, "--set must give each name once", name=name, remedy=remedy)
        try:
            values[name] = parse_json(text)
        except ValueError:
            values[name] = _PYTHON.get(text, text)
    return values


def is_path(name: str) -> bool:
    """Return whether a name of `--set` is a field of the experiment; a bare name is a hyper-parameter."""
    return "." in name


def follow_sweep(options: Namespace) -> None:
    """Settle whose experiment a command starts from: that of `--like`, or of the sweep that is named.

    A sweep of the workspace goes before a method of its name. ``options.begun`` becomes its experiment file,
    None where there is none, and ``options.like`` its name.

    Raises:
        BadInput: `--like` names no sweep that has ended, or METHOD neither a method nor a sweep.
    """
    options.begun = None
    if not hasattr(options, "like"):
        return
    from stillhouse.sweeps.begun import check_method_or_sweep, ended_sweep, sweep_file, sweep_of_model

    root, method = root_of(options).resolve(), getattr(options, "method", None)
    if options.like:
        options.begun = ended_sweep(options.like, root)
    elif "model" in options:
        options.begun = sweep_of_model(options.model, root)
        options.like = options.begun.parent.name if options.begun else ""
    elif method and not getattr(options, "file", None) and not getattr(options, "space", None):
        options.begun = sweep_file(method, root)
        if options.begun is not None:
            options.like, options.method = method, None
            options.name = getattr(options, "name", None) or method
    if getattr(options, "method", None):
        check_method_or_sweep(options.method, root)


def experiment_from(options: Namespace, file: Mapping[str, Any] | None = None) -> Experiment:
    """Return the experiment: flags before the file before a sweep's experiment, or before the environment.

    The file's fields are nested.

    Raises:
        BadInput: An unknown field, a value of another type or out of range, or values that contradict.
    """
    flags = flags_of(options)
    paths = {name: value for name, value in settings(getattr(options, "set", [])).items() if is_path(name)}
    both = sorted({FLAGS[name] for name in flags} & set(paths))
    require(
        not both,
        "a field must be given once, by its flag or by --set",
        both=both,
        remedy="Leave out one of the two.",
    )
    if opts_out(file or {}):
        flags.pop("data_root", None)
    given = {FLAGS[name]: value for name, value in flags.items()} | paths
    if getattr(options, "begun", None) is None:
        return experiment_of(merged(with_file({}, file or {}), given))
    from stillhouse.sweeps.begun import experiment_like

    return experiment_like(options.begun, {**flattened(file or {}), **given})


def require_corpus(experiment: Experiment) -> None:
    """Refuse a corpus that does not exist, before anything is loaded.

    Raises:
        BadInput: There is no such file or folder, and nothing matches it as a glob.
    """
    source = experiment.source
    for corpus in source.corpora if isinstance(source, Sentences) else ():
        remedy = "Such as --corpus texts.txt, or pydocs for the documentation of the packages here."
        require(bool(corpus.strip()), "--corpus must not be empty", corpus=corpus, remedy=remedy)
        local = bool(corpus) and corpus != "pydocs" and "://" not in corpus and not corpus.startswith("hf:")
        path = Path(corpus).expanduser()
        if local and not path.exists() and not glob.glob(str(path), recursive=True):
            raise BadInput(
                f"the corpus {corpus!r} does not exist. Give a file, a folder, a glob, s3://…, gs://… or "
                "hf:name."
            )
    for kind in experiment.kinds:
        kind.reader.check_files()


def flags_of(options: Namespace) -> dict[str, Any]:
    """The flags of the experiment's fields that were given, by name."""
    flags = {name: getattr(options, name) for name in FLAGS if getattr(options, name, None) is not None}
    if str(flags.get("layers", "")).startswith("["):
        flags["layers"] = _layers(flags["layers"])
    for name, example in (("sources", _SOURCES), ("teachers", _TEACHERS)):
        if name in flags:
            flags[name] = _mappings(name, flags[name], example)
    return flags


def fractions_of(options: Namespace) -> tuple[float, ...]:
    """The shares that ``--fractions`` lists; none without it.

    Raises:
        BadInput: A share is not a number, out of range or repeated, or ``--fraction`` is given too.
    """
    if options.fractions is None:
        return ()
    remedy = "Such as --fractions 1,0.3,0.1."
    require(options.fraction is None, "--fractions must come without --fraction", fraction=options.fraction)
    try:
        shares = tuple(float(part) for part in options.fractions.split(","))
    except ValueError:
        shares = ()
    good = bool(shares) and all(0 < share <= 1 for share in shares) and len(set(shares)) == len(shares)
    require(
        good, "--fractions must list different numbers in (0, 1]", fractions=options.fractions, remedy=remedy
    )
    return shares


def asked(options: Namespace, declared: Any = Resources) -> dict[str, Any]:
    """Return the declared keywords that the command line gives; a command has flags for some of them."""
    found = {name: getattr(options, name, None) for name in declared.__annotations__}
    found |= {"root": root_of(options), "remote": remote_of(options)}
    return {name: value for name, value in found.items() if value is not None}


def embedding_of(options: Namespace, device: str) -> Embedding:
    """Return the place and processes of the teacher's run; `evaluate` has no actors."""
    return Embedding(actors=getattr(options, "actors", None) or 0, local=options.local, device=device)


def root_of(options: Namespace) -> Path:
    """The workspace's folder.

    Raises:
        BadInput: It is given as a URL.
    """
    return root_folder(options.root)


def remote_of(options: Namespace) -> str:
    """The address of the workspace's remote; empty if it has none. The limit of the cache becomes the node's.

    Raises:
        BadInput: The limit of the cache is no number of gigabytes.
    """
    limit_to(options.cache_gb)
    return str(default_remote() if options.remote is None else options.remote)


def _mappings(flag: str, text: str, example: str) -> list[Any]:
    try:
        listed = parse_json(text)
    except ValueError:
        listed = None
    rule = f"--{flag} must be a JSON list of mappings, with one at least"
    fits = isinstance(listed, list) and bool(listed)
    require(fits, rule, remedy=f"Such as --{flag} '{example}'.", **{flag: text})
    return list(listed or ())


def _layers(text: str) -> tuple[int, ...]:
    try:
        listed = parse_json(text)
    except ValueError:
        listed = None
    whole = isinstance(listed, list) and all(type(layer) is int for layer in listed)
    require(whole, "--layers must be a rule, or a list of integers such as [0,2,4]", layers=text)
    return tuple(listed or ())
