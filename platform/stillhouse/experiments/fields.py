"""The fields of an experiment by path, such as ``pairs.mining.range_max``: one name everywhere."""

import copy
import dataclasses
import functools
import json
import os
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.core.type_casts import cast
from stillhouse.experiments.data_kind import data_kinds
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.student_choice import student_kinds
from stillhouse.experiments.text_in_memory import IN_MEMORY, NAMES

KIND = "kind"
"""The field of ``student`` that names its kind."""
DATA_ROOT = "STILLHOUSE_DATA"
"""The variable that stands for a folder of data, in the environment and in experiment files."""
SOURCES = "sources"
"""The field that is set where a list is given for a whole kind of data."""
MEMBERS = "members"
"""The field that is set where a list is given for the teacher."""
_ONE_TEACHER = ("teacher.name", "teacher.vectors", "teacher.endpoint")
"""Fields that say which teacher it is."""
_GROUPS = ("teacher", "budget", "selection")
_VALUES = ("max_length", "compute", "seed")


@dataclass(frozen=True)
class Field:
    """A field of an experiment by its path, with its type in words and what it means."""

    path: str
    type: str
    default: Any
    text: str


@functools.cache
def fields() -> dict[str, Field]:
    """Every field of every kind of experiment, by path."""
    found = {field.path: field for field in _walk(Experiment, "", _VALUES)}
    hints = typing.get_type_hints(Experiment)
    for group in _GROUPS:
        found |= {field.path: field for field in _walk(hints[group], f"{group}.")}
    kinds = student_kinds()
    first = next(key for key, kind in kinds.items() if kind.default)
    choices = f"Kind of student: {', '.join(f'``{key}``' for key in kinds)}."
    found[f"student.{KIND}"] = Field(f"student.{KIND}", "str", first, choices)
    for kind in sorted(kinds.values(), key=lambda kind: not kind.default):
        for field in _walk(kind, "student."):
            name = field.path.removeprefix("student.").partition(".")[0]
            owners = [f"``{key}``" for key, each in kinds.items() if hasattr(each, name)]
            if len(owners) < len(kinds):
                field = dataclasses.replace(field, text=f"{field.text} Of kind {' and '.join(owners)}.")
            found.setdefault(field.path, field)
    for key, data in data_kinds().items():
        found |= {field.path: field for field in _walk(data, f"{key}.")}
    return found


def attribute_docs(documented: type) -> dict[str, str]:
    """What a class's docstring says of each of its attributes; nothing without docstring-parser.

    A bare machine that trains with ``--local`` may lack it, and then only help texts are empty.
    """
    try:
        import docstring_parser
    except ImportError:
        return {}
    google = docstring_parser.DocstringStyle.GOOGLE
    texts = [vars(each).get("__doc__") or "" for each in reversed(documented.__mro__)]
    return {
        each.arg_name: " ".join((each.description or "").split())
        for text in texts
        for each in docstring_parser.parse(text, google).meta
        if isinstance(each, docstring_parser.DocstringParam)
    }


def experiment_of(mapping: Mapping[str, Any]) -> Experiment:
    """Build an experiment from nested names and values, as an experiment file has them.

    A kind of data whose value is None is left out, even where another kind brings it.

    Raises:
        BadInput: An unknown name (the near ones are listed), or a value of another type or out of range.
    """
    values: dict[str, Any] = {}
    data, without = [], []
    kinds = data_kinds()
    for name, given in mapping.items():
        if name in kinds and given is None:
            without.append(name)
        elif name in kinds:
            listed = isinstance(given, list) and bool(_listed(name))
            data.append(_build(kinds[name], {SOURCES: given} if listed else given, name))
        elif name == "student":
            values[name] = _student(given)
        elif name in (*_GROUPS, *_VALUES):
            given = {MEMBERS: _teachers(given)} if name == "teacher" and isinstance(given, list) else given
            hint = typing.get_type_hints(Experiment)[name]
            values[name] = _build(hint, given, name) if name in _GROUPS else cast(given, name, hint)
        else:
            raise BadInput(f"unknown field `{name}`. {near_fields(name, groups=True)}")
    return Experiment(data=tuple(data), without=tuple(without), **values)


def changed(experiment: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """The experiment with other values at some paths.

    Raises:
        BadInput: See `experiment_of`.
    """
    return experiment_of(merged(as_mapping(experiment), changes))


def merged(mapping: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested names and values with other values at some paths; None at a kind of data leaves it out.

    Raises:
        BadInput: A path that no field has; the near ones are listed.
    """
    result = copy.deepcopy(dict(mapping))
    student = result.get("student", {})
    if changes.get(f"student.{KIND}", student.get(KIND)) != student.get(KIND):
        # Another kind of student has other fields; it starts from the same checkpoint.
        result["student"] = {name: value for name, value in student.items() if name == "checkpoint"}
    if changes.get(f"teacher.{MEMBERS}"):
        result["teacher"] = {}
    elif any(path in changes for path in _ONE_TEACHER):
        result["teacher"] = {} if (teacher := result.get("teacher", {})).get(MEMBERS) else teacher
    if changes.get("sentences.corpus") and f"sentences.{SOURCES}" not in changes:
        (result.get("sentences") or {}).pop(SOURCES, None)  # One corpus takes the place of several.
    for path, value in changes.items():
        if path in data_kinds() and value in (None, {}):
            result[path] = None if value is None else result.get(path) or {}
            continue
        if path not in fields():
            raise BadInput(f"unknown field `{path}`. {near_fields(path)}")
        if path == f"teacher.{MEMBERS}":
            value = _teachers(value)
        *groups, last = path.split(".")
        place = result
        for group in groups:
            if not isinstance(place.get(group), dict):
                place[group] = {}
            place = place[group]
        place[last] = value
    return result


def with_file(mapping: Mapping[str, Any], file: Mapping[str, Any]) -> dict[str, Any]:
    """Nested names and values with those of an experiment file, which come before the environment.

    ``$STILLHOUSE_DATA`` is the data root where it has STS sets to select by and to test on; it may hold other
    data.

    Raises:
        BadInput: See `merged`.
    """
    from stillhouse.evaluation.sts import sts_sets

    root = os.environ.get(DATA_ROOT, "")
    has = bool(root) and all(sts_sets(root, split) for split in ("dev", "test"))
    environment = {"selection.data_root": root} if has else {}
    return merged(mapping, {**environment, **flattened(file)})


def opts_out(file: Mapping[str, Any]) -> bool:
    """Whether a file leaves out the data root on purpose; ``--data-root`` then stands for its paths alone."""
    return flattened(file).get("selection.data_root") == ""


def flattened(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested names and values as paths and values."""
    flat: dict[str, Any] = {}
    for name, value in mapping.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and path not in fields():
            flat |= flattened(value, f"{path}.")
        elif isinstance(value, list) and (listed := _listed(path)):
            flat[listed] = value
        else:
            flat[path] = value
    return flat


def as_mapping(experiment: Experiment) -> dict[str, Any]:
    """The experiment as nested names and values: `experiment_of` gives it back."""
    result: dict[str, Any] = {name: getattr(experiment, name) for name in _VALUES}
    result |= {group: dataclasses.asdict(getattr(experiment, group)) for group in _GROUPS}
    student: Any = experiment.student
    result["student"] = {KIND: student.key, **dataclasses.asdict(student)}
    result |= {kind.key: _as_named(kind) for kind in experiment.data}
    return result | dict.fromkeys(experiment.without)


def _as_named(kind: Any) -> dict[str, Any]:
    """A kind of data as names and values; text in memory has none, but its file has.

    Raises:
        BadInput: It holds text in memory.
    """
    held = {
        field.name: getattr(kind, field.name)
        for field in dataclasses.fields(kind)
        if IN_MEMORY in field.metadata
    }
    for name, value in held.items():
        rule = f"{kind.key}.{name} must be written to a file before it can be named"
        require(
            value is None,
            rule,
            remedy="`experiments.text_in_memory.in_files` does that.",
            **{name: str(value)},
        )
    return {name: value for name, value in dataclasses.asdict(kind).items() if name not in held}


def as_file(experiment: Experiment) -> dict[str, Any]:
    """The fields that are not at their defaults, as an experiment file has them: `experiment_of` reads it."""
    whole, usual = as_mapping(experiment), as_mapping(Experiment())
    for key in whole:
        if key in data_kinds() and whole[key] is not None:
            usual[key] = _defaults(data_kinds()[key])
    usual["student"] |= dataclasses.asdict(typing.cast(Any, type(experiment.student)()))
    found = _differing(whole, usual)
    data = {kind.key: found.pop(kind.key, {}) for kind in experiment.data}
    return found | data


def _defaults(kind: type) -> dict[str, Any]:
    """The defaults of a kind of data as names and values; without a folder, say, it would be refused."""
    empty: Any = object.__new__(kind)
    for field in dataclasses.fields(kind):
        made = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        object.__setattr__(empty, field.name, made)
    return dataclasses.asdict(empty)


def _differing(mapping: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """What of nested names and values differs from others."""
    found = {}
    for name, value in mapping.items():
        nested = isinstance(value, dict) and isinstance(usual.get(name), dict)
        kept = _differing(value, usual[name]) if nested else value
        if kept != {} and (name not in usual or kept != usual[name]):
            found[name] = kept
    return found


def stated(experiment: Experiment) -> dict[str, Any]:
    """The experiment's values by path that differ from their defaults: what MLflow logs of it."""
    return {path: value for path, value in flattened(as_file(experiment)).items() if path in fields()}


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The fields in which two experiments differ, by what each states: ``seed 0 → 1, max_length 64 → 32``."""
    known = {path: field.default for path, field in fields().items()} | {key: {} for key in data_kinds()}
    pairs = {path: (then.get(path, known[path]), now.get(path, known[path])) for path in {**then, **now}}
    return ", ".join(f"{path} {_shown(a)} → {_shown(b)}" for path, (a, b) in pairs.items() if a != b)


def _shown(value: Any) -> str:
    return "''" if value == "" else str(value)


def near_fields(path: str, *, groups: bool = False) -> str:
    """A remedy for a misspelt path: the near ones, and the command that lists all.

    A path of which only the end or a part was written counts as misspelt too. With ``groups`` a group of
    fields, such as ``teacher.prompts``, may be meant.
    """
    from difflib import get_close_matches

    known = list(fields())
    if groups:
        # ``a``, ``a.b`` and ``a.b.c`` of ``a.b.c``.
        beginnings = (accumulate(each.split("."), "{}.{}".format) for each in known)
        known = list(dict.fromkeys(chain.from_iterable(beginnings)))
    last = path.rpartition(".")[2]
    near = [each for each in known if "." not in path and each.rpartition(".")[2] == last]
    near = near or get_close_matches(path, known, n=3, cutoff=0.6)
    near = near or [each for each in known if last in each.split(".")]
    if not near:
        parts = list(dict.fromkeys(part for each in known for part in each.split(".")))
        close = get_close_matches(last, parts, n=1, cutoff=0.6)
        near = [each for each in known if close and each.rpartition(".")[2] == close[0]]
        near = near or [each for each in known if close and close[0] in each.split(".")]
    question = f"Did you mean {' or '.join(near[:3])}? " if near else ""
    return f"{question}`stillhouse fields` lists them."


def _listed(path: str) -> str:
    """The field that takes a list where the file gives one for the whole section; empty if there is none."""
    return next((each for name in (SOURCES, MEMBERS) if (each := f"{path}.{name}") in fields()), "")


def _teachers(given: Any) -> Any:
    require(
        not isinstance(given, list) or bool(given),
        "a list of teachers must have at least one entry",
        teacher=given,
        remedy="Such as `teacher: [{name: A}, {name: B, weight: 0.5}]`.",
    )
    return given


def _student(given: Any) -> Any:
    kinds = student_kinds()
    require(isinstance(given, Mapping), "`student` must map names to values", student=given)
    key = given.get(KIND) or next(key for key, kind in kinds.items() if kind.default)
    require(key in kinds, f"student.kind in {tuple(kinds)}", kind=key)
    values = {name: value for name, value in given.items() if name != KIND}
    own = {field.name for field in dataclasses.fields(typing.cast(Any, kinds[key]))}
    for name in values:
        if name not in own and f"student.{name}" in fields():
            owners = [each for each, kind in kinds.items() if hasattr(kind, name)]
            raise BadInput(
                f"`student.{name}` goes with a student of the kind {' or '.join(owners)}, "
                f"but student.kind is {key!r}."
            )
    return _build(kinds[key], values, "student")


def _build(target: Any, given: Any, path: str) -> Any:
    """A dataclass from names and values, nested dataclasses included."""
    require(isinstance(given, Mapping), f"`{path}` must map names to values", **{path: given})
    hints, values = typing.get_type_hints(target), {}
    own = {field.name: field for field in dataclasses.fields(target) if IN_MEMORY not in field.metadata}
    for name, value in given.items():
        if name not in own:
            known = [f"{path}.{each}" for each in own]
            raise BadInput(f"unknown field `{path}.{name}`. {nearest(f'{path}.{name}', known)}")
        if own[name].metadata == NAMES and isinstance(value, Mapping):
            value = json.dumps({str(key): each for key, each in value.items()})
        values[name] = _value(hints[name], value, f"{path}.{name}")
    return target(**values)


def _value(hint: Any, given: Any, path: str) -> Any:
    """A value of a declared type: a dataclass, a tuple of such, or something plain."""
    if dataclasses.is_dataclass(hint):
        return _build(hint, given, path)
    if _item_of(hint) is None:
        require(
            not any(
                isinstance(each, str) and f"${DATA_ROOT}" in each
                for each in (given if isinstance(given, list) else [given])
            ),
            f"${DATA_ROOT} must stand for a folder with the data that the file names",
            **{path: given},
            remedy="Give --data-root DIR, or set the environment variable.",
        )
        return cast(given, path, hint)
    require(isinstance(given, list | tuple), f"`{path}` must be a list of mappings", **{path: given})
    return tuple(_build(_item_of(hint), item, f"{path}[{at}]") for at, item in enumerate(given))


def _item_of(hint: Any) -> Any:
    """The dataclass that a tuple consists of; None for any other type."""
    arguments = typing.get_args(hint)
    is_tuple = typing.get_origin(hint) is tuple and dataclasses.is_dataclass(arguments[0])
    return arguments[0] if is_tuple else None


def _walk(documented: Any, prefix: str, names: tuple[str, ...] = ()) -> Iterator[Field]:
    """The fields of a value, those of nested values included; only those of ``names``, if any are given."""
    texts, hints = attribute_docs(documented), typing.get_type_hints(documented)
    for field in dataclasses.fields(documented):
        hint = hints[field.name]
        if IN_MEMORY in field.metadata or (names and field.name not in names):
            continue
        if dataclasses.is_dataclass(hint):
            yield from _walk(hint, f"{prefix}{field.name}.")
        else:
            shown = hint.__name__ if isinstance(hint, type) else str(hint)
            shown = shown if _item_of(hint) is None else "list of mappings"
            yield Field(f"{prefix}{field.name}", shown, field.default, texts.get(field.name, ""))
