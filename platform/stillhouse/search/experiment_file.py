"""Experiment files: YAML with a method and its values, fields, variants, a summary, scales and a search."""

import os
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.experiments.fields import DATA_ROOT

SEARCH_KEYS = ("fixed", "first", "second", "space", "continuous")
_OF_THE_METHOD = ("method", "preset", "values")
_OF_ONE_FILE = ("variants", "summary", "search")
_BESIDE_FIELDS = (*_OF_THE_METHOD, *_OF_ONE_FILE, "scale")


@dataclass(frozen=True)
class Run:
    """One training run of an experiment file.

    Attributes:
        name: Name of the variant; empty for the run of a file without variants.
        method: Name of the method.
        preset: Name of the method's preset.
        values: Hyper-parameters that differ from the preset.
        experiment: Fields of the experiment, nested.
        chosen: Whether somebody chose the preset; its batches are then kept, however short the stages are.
    """

    name: str
    method: str
    preset: str = "paper"
    values: Mapping[str, Any] = field(default_factory=dict)
    experiment: Mapping[str, Any] = field(default_factory=dict)
    chosen: bool = False


@dataclass(frozen=True)
class Summary:
    """A line below the variants of an experiment file: a mean, or the best variant's lead over another one.

    Attributes:
        name: Name of the line.
        of: The variants.
        by: Figure by which the best of them is chosen; empty takes the mean of all of them.
        minus: Variant that is subtracted; empty subtracts none.
    """

    name: str
    of: tuple[str, ...]
    by: str = ""
    minus: str = ""

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants that it reads."""
        return (*self.of, *([self.minus] if self.minus else []))

    def figures(self, metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Compute the line from the metrics of its variants.

        Raises:
            BadInput: The best variant is asked for by a figure that they do not have.
        """
        rows = [metrics[name] for name in self.of]
        if self.by:
            lacking = [name for name in self.of if self.by not in metrics[name]]
            if lacking:
                raise BadInput(
                    f"the line {self.name!r} of the summary takes the best by `{self.by}`, but "
                    f"{', '.join(lacking)} have no such figure. {nearest(self.by, sorted(rows[0]))}"
                )
            rows = [max(rows, key=lambda row: row[self.by])]
        less: Mapping[str, float] = metrics[self.minus] if self.minus else {}
        shared = [name for name in rows[0] if all(name in row for row in (*rows, *([less] if less else [])))]
        return {name: sum(row[name] for row in rows) / len(rows) - less.get(name, 0.0) for name in shared}


def load_base(path: str | Path, *, scale: str = "", data_root: str = "") -> Run:
    """Read an experiment file without its variants: what a sweep of it shares.

    Args:
        path: The file.
        scale: Name of a scale of the file, whose fields and values come first; empty takes the full size.
        data_root: Folder that ``$STILLHOUSE_DATA`` stands for in the file; empty takes the environment's.

    Raises:
        BadInput: The file cannot be read, is invalid, or has no such scale (the near ones are listed).
    """
    content, changes = _parts(path, scale)
    return _run("", [content, changes], str(path), data_root)


def load_runs(path: str | Path, *, scale: str = "", data_root: str = "") -> tuple[Run, ...]:
    """Read the runs of an experiment file: its variants, or the one run of a file without any.

    A scale changes the file's fields and values, a variant changes those of the scale. In a section
    ``variants`` of its own, a scale changes single variants, and leaves out those that are ``null`` there;
    ``NAME*`` stands for all whose names begin so. `load_base` explains the arguments.

    Raises:
        BadInput: See `load_base`.
    """
    file = str(path)
    content, changes = _parts(path, scale)
    variants = mapping_at(content, "variants", file)
    own = mapping_at(changes, "variants", file)
    for name in own:
        if not any(fnmatchcase(variant, name) for variant in variants):
            raise BadInput(
                f"{file}: the scale {scale!r} changes an unknown variant `{name}`. " + _near(name, variants)
            )
    if not variants:
        return (_run("", [content, changes], file, data_root),)
    runs = []
    for name, variant in variants.items():
        others = [given for pattern, given in own.items() if fnmatchcase(name, pattern)]
        if None not in others:
            runs.append(_run(name, [content, changes, variant or {}, *others], file, data_root))
    return tuple(runs)


def load_search(path: str | Path, *, scale: str = "") -> dict[str, Any]:
    """Read the section ``search`` of an experiment file, at a scale.

    Raises:
        BadInput: See `load_base`.
    """
    content, changes = _parts(path, scale)
    return overlaid(mapping_at(content, "search", str(path)), mapping_at(changes, "search", str(path)))


def load_summary(path: str | Path) -> tuple[Summary, ...]:
    """Read the section ``summary`` of an experiment file.

    A line is ``NAME: {mean: [VARIANT, …]}`` or ``NAME: {best: [VARIANT, …], by: FIGURE}``; with
    ``minus: VARIANT``, that variant's figures are subtracted.

    Raises:
        BadInput: A line has another form, or names an unknown variant.
    """
    file, content = str(path), _content(Path(path))
    variants = mapping_at(content, "variants", file)
    return tuple(
        _summary(name, line, variants, file) for name, line in mapping_at(content, "summary", file).items()
    )


def _summary(name: str, line: Any, variants: Mapping[str, Any], file: str) -> Summary:
    given = line if isinstance(line, Mapping) else {}
    rules = {"mean": {"mean", "minus"}, "best": {"best", "by", "minus"}}
    kind = next((kind for kind in rules if kind in given), "")
    of = given.get(kind)
    fits = bool(kind) and set(given) <= rules[kind] and isinstance(of, list) and bool(of)
    require(
        fits and (kind == "mean" or bool(given.get("by"))),
        "a line of `summary` must be `{mean: [VARIANT, …]}` or `{best: [VARIANT, …], by: FIGURE}`, either "
        "with `minus: VARIANT`",
        file=file,
        line=name,
        value=line,
    )
    assert isinstance(of, list)
    summary = Summary(name, tuple(map(str, of)), str(given.get("by", "")), str(given.get("minus", "")))
    for variant in summary.variants:
        if variant not in variants:
            raise BadInput(
                f"{file}: the line {name!r} of `summary` has an unknown variant. {_near(variant, variants)}"
            )
    return summary


def variants_named(runs: tuple[Run, ...], names: list[str], file: str) -> tuple[Run, ...]:
    """Return the runs with these names; all of them for no name.

    Raises:
        BadInput: No run has such a name; the near ones are listed.
    """
    known = {run.name: run for run in runs}
    for name in names:
        if name not in known or not name:
            raise BadInput(f"{file}: unknown variant {name!r}. {_near(name, known)}")
    return tuple(known[name] for name in names) if names else runs


def overlaid(mapping: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested names and values with others laid over them."""
    result = dict(mapping)
    for name, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(result.get(name), Mapping)
        result[name] = overlaid(result[name], value) if both else value
    return result


def mapping_at(content: Mapping[Any, Any], key: str, file: str) -> dict[str, Any]:
    """The names and values at a key; none where the key is missing or empty.

    Raises:
        BadInput: The key has another value, or a name is no string.
    """
    value = content.get(key)
    if value is None:
        return {}
    require(isinstance(value, dict), f"`{key}` must map names to values", file=file, key=key, value=value)
    assert isinstance(value, dict)
    others = [name for name in value if not isinstance(name, str)]
    require(not others, "names must be strings", file=file, key=key, names=others)
    return value


def _parts(path: str | Path, scale: str) -> tuple[dict[Any, Any], dict[str, Any]]:
    """The content of a file, and what a scale changes of it."""
    file = str(path)
    content = _content(Path(path))
    scales = mapping_at(content, "scale", file)
    if scale and scale not in scales:
        raise BadInput(f"{file}: unknown scale {scale!r}. {_near(scale, scales)}")
    return content, mapping_at(scales, scale, file) if scale else {}


def _content(path: Path, above: tuple[Path, ...] = ()) -> dict[Any, Any]:
    """The content of a file, laid over the fields, values and scales of the file that it extends."""
    content = read_yaml(path)
    if "extends" not in content:
        return content
    name = content.pop("extends")
    require(
        isinstance(name, str) and path not in above,
        "`extends` must name another experiment file",
        file=str(path),
        extends=name,
    )
    base = _content(path.parent / name, (*above, path))
    taken: dict[str, Any] = {key: value for key, value in base.items() if key not in _OF_ONE_FILE}
    scales = mapping_at(base, "scale", name)
    taken["scale"] = {
        scale: {k: v for k, v in mapping_at(scales, scale, name).items() if k not in _OF_ONE_FILE}
        for scale in scales
    }
    return overlaid(taken, content)


def _run(name: str, layers: list[Mapping[Any, Any]], file: str, data_root: str) -> Run:
    """The run that layers of names and values make together."""
    first, *others = layers
    content: dict[str, Any] = dict(first)
    for layer in others:
        require(
            isinstance(layer, Mapping),
            "a variant must map names to values",
            file=file,
            variant=name,
            value=layer,
        )
        content = overlaid(content, layer)
    method, preset = content.get("method"), content.get("preset", "paper")
    require(isinstance(method, str), "`method` must name a method", file=file, key="method", method=method)
    require(isinstance(preset, str), "`preset` must name a preset", file=file, key="preset", preset=preset)
    values = mapping_at(content, "values", file)
    fields = _with_data(_fields(content, file), data_root or os.environ.get(DATA_ROOT, ""))
    return Run(name, str(method), str(preset), values, fields, chosen="preset" in content)


def _fields(content: Mapping[Any, Any], file: str) -> dict[str, Any]:
    """The fields of the experiment: everything but the method, its values, and the other sections."""
    moved = [key for key in SEARCH_KEYS if key in content]
    require(
        not moved,
        "a search space must stand below `search:`",
        file=file,
        found_beside_it=moved,
        remedy="Indent these keys below a line `search:`.",
    )
    require(
        "experiment" not in content,
        "the fields of an experiment must stand at the top of the file, by kind",
        file=file,
        remedy="Such as `sentences: {corpus: …}`; `stillhouse fields` lists them.",
    )
    return {str(key): value for key, value in content.items() if key not in _BESIDE_FIELDS}


def _with_data(fields: Any, folder: str, known: dict[int, Any] | None = None) -> Any:
    """The same fields with a folder for ``$STILLHOUSE_DATA``, which stays where there is none.

    A value that a file names several times by an alias is copied once: its copies may be beyond number.
    """
    known = {} if known is None else known
    if isinstance(fields, Mapping | list):
        if id(fields) not in known:
            known[id(fields)] = (
                {name: _with_data(value, folder, known) for name, value in fields.items()}
                if isinstance(fields, Mapping)
                else [_with_data(value, folder, known) for value in fields]
            )
        return known[id(fields)]
    return fields.replace(f"${DATA_ROOT}", folder) if folder and isinstance(fields, str) else fields


def _near(name: str, known: Mapping[str, Any]) -> str:
    return nearest(name, sorted(known)) if known else "The file has none."


class _Loader(yaml.SafeLoader):
    """YAML that reads ``1e-4`` as a number (YAML 1.1 requires ``1.0e-4``) and refuses repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, (str, int, float, bool)):
                raise yaml.MarkedYAMLError(
                    problem=f"a key must be a name or a number, but is {key!r}",
                    problem_mark=key_node.start_mark,
                )
            if key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key `{key}` appears twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*)(\.[\d_]*)?[eE][-+]?\d+$|^[-+]?\.\d+[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


class _Dumper(yaml.SafeDumper):
    """YAML that `_Loader` reads as it was: a text such as ``1e5`` is quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(tuple, lambda dumper, value: dumper.represent_list(value))
_Dumper.yaml_implicit_resolvers = {
    first: [*_Loader.yaml_implicit_resolvers.get(first, ())] for first in _Loader.yaml_implicit_resolvers
}


def yaml_of(content: Mapping[str, Any]) -> str:
    """Write an experiment file, as `read_yaml` reads it."""
    return yaml.dump(
        content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110
    )


def read_yaml(path: Path) -> dict[Any, Any]:
    """Read the YAML of an experiment file.

    Raises:
        BadInput: The file cannot be read, or is not a mapping in well-formed YAML.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise BadInput(f"{path}: an experiment file must be readable: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: an experiment file must be UTF-8 text.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise BadInput(
            f"{path}{line}: an experiment file must be well-formed YAML: {error.problem}."
        ) from None
    except (yaml.YAMLError, ValueError, OverflowError, AttributeError) as error:
        raise BadInput(f"{path}: an experiment file must be well-formed YAML: {error}.") from None
    except RecursionError:
        raise BadInput(f"{path}: an experiment file must be nested less deeply.") from None
    require(
        isinstance(content, dict),
        "an experiment file must map names to values",
        file=str(path),
        content=content,
    )
    assert isinstance(content, dict)
    _refuse_loops(content, path, (), set())
    return content


def _refuse_loops(value: Any, path: Path, above: tuple[int, ...], seen: set[int]) -> None:
    """Refuse an alias within its own anchor.

    Raises:
        BadInput: There is one.
    """
    if not isinstance(value, dict | list):
        return
    if id(value) in above:
        raise BadInput(
            f"{path}: a value must not contain itself, but an alias names what it is part of. Write it out."
        )
    if id(value) not in seen:
        seen.add(id(value))
        for each in value.values() if isinstance(value, dict) else value:
            _refuse_loops(each, path, (*above, id(value)), seen)
