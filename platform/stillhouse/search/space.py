"""Search spaces: a YAML file with the searched domains, the fixed values and the first point."""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import yaml

from stillhouse.core.errors import BadInput, nearest, require
from stillhouse.core.identity import fingerprint
from stillhouse.search.domains import Categorical, Domain, Float, Int, domain, frozen
from stillhouse.search.type_casts import cast_domain, cast_point, check_ranges

__all__ = ["Categorical", "Domain", "Float", "Int", "Space", "check", "load_space"]

_SECTIONS = ("space", "continuous")
_SEARCH_KEYS = ["fixed", "first", *_SECTIONS]


@dataclass(frozen=True)
class Space:
    """A search space. Lists in the file are tuples here.

    Attributes:
        method: Name of the method, such as ``ibkd``.
        domains: Domain of each searched hyper-parameter, in the order of the file.
        fixed: Values of the hyper-parameters that are not searched.
        first: The published configuration: a value for every searched hyper-parameter.
        experiment: Fields of the experiment that the file gives, nested.
        source: The file, for messages.
        set_aside: Values that `without` removed from ``first``, for messages.
    """

    version: ClassVar[int] = 1
    method: str
    domains: Mapping[str, Domain]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    first: Mapping[str, Any] | None = None
    experiment: Mapping[str, Any] = field(default_factory=dict)
    source: str = field(default="search space", metadata={"identity": False})
    set_aside: Mapping[str, Any] = field(default_factory=dict, metadata={"identity": False})

    def __post_init__(self) -> None:
        """Check that something is searched, nothing twice, and that the first point is in the space."""
        where = {"file": self.source}
        require(
            len(self.domains) > 0,
            "a space must have at least one hyper-parameter",
            **where,
            remedy="Add a name and its values.",
        )
        both = sorted(set(self.domains) & set(self.fixed))
        require(not both, "a hyper-parameter must be either searched or fixed", **where, both=both)
        if self.first is None:
            return
        missing, more = set(self.domains) - set(self.first), set(self.first) - set(self.domains)
        require(
            not missing and not more,
            "`first` must have a value for every searched hyper-parameter and for no other",
            **where,
            key="first",
            missing=sorted(missing),
            unknown=sorted(more),
        )
        for name, value in self.first.items():
            inside = self.domains[name].holds(value)
            require(
                inside,
                "`first` must lie within the space",
                **where,
                key=f"first.{name}",
                **{str(name): value},
            )

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits over everything that is searched, fixed or tried first."""
        return fingerprint(self)

    @property
    def has_numeric(self) -> bool:
        """Whether any domain is a numeric range, which quasi-random points need."""
        return any(not isinstance(values, Categorical) for values in self.domains.values())

    @property
    def points(self) -> int | None:
        """Number of distinct configurations; None if a real range makes them infinite."""
        size = 1
        for values in self.domains.values():
            if isinstance(values, Float):
                return None
            size *= values.size
        return size

    def grid_size(self) -> int:
        """Number of points of the grid.

        Raises:
            BadInput: The space contains a real range.
        """
        ranges = [name for name, values in self.domains.items() if isinstance(values, Float)]
        require(
            not ranges,
            "a grid must have a list of values for every name",
            file=self.source,
            ranges=ranges,
            remedy="List their values, or use another sampler.",
        )
        size = self.points
        assert size is not None
        return size

    def at(self, units: Sequence[float]) -> dict[str, Any]:
        """Map a point of the unit cube, one number in [0, 1) per name, to a point of the space."""
        pairs = zip(self.domains.items(), units, strict=True)
        return {name: values.at(float(unit)) for (name, values), unit in pairs}

    def probes(self) -> Iterator[dict[str, Any]]:
        """Yield points that cover both ends of every range and every choice, the rest as in ``first``.

        Fixed values are included. If a plan can be built from each point, no trial of the sweep is refused.
        """
        start = {n: v.low if isinstance(v, Float) else v.nth(0) for n, v in self.domains.items()}
        base = {**self.fixed, **start, **(self.first or {})}
        for name, values in self.domains.items():
            ends = values.choices if isinstance(values, Categorical) else (values.low, values.high)
            for value in ends:
                yield {**base, name: value}

    def without(self, *names: str) -> "Space":
        """Remove names from the searched ones and ``first`` (the epochs with a scheduler)."""
        first = self.first and {name: value for name, value in self.first.items() if name not in names}
        kept = {name: values for name, values in self.domains.items() if name not in names}
        aside = {name: value for name, value in (self.first or {}).items() if name in names}
        return replace(self, domains=kept, first=first, set_aside={**self.set_aside, **aside})


def load_space(path: str | Path, *, space: str = "space") -> Space:
    """Read the search space of an experiment file.

    Args:
        path: The YAML file: ``method``; ``search`` with ``fixed``, ``first``, ``space`` and ``continuous``;
            and the fields of the experiment.
        space: The section that is searched: ``space`` (the grid) or ``continuous``.

    Raises:
        BadInput: The file cannot be read or is invalid; the message names the file and the key.
    """
    file = str(path)
    require(space in _SECTIONS, f"--section must be one of {', '.join(_SECTIONS)}", section=space)
    content = _read(Path(path))
    method, search = content.get("method"), _mapping(content, "search", file)
    require(isinstance(method, str), "`method` must name a method", file=file, key="method", method=method)
    experiment = _experiment(content, file)
    _refuse_unknown(search, _SEARCH_KEYS, file, "search.")
    parts = {key: _mapping(search, key, file) for key in ("fixed", "first", space)}
    present = [key for key in _SECTIONS if search.get(key)]
    require(
        len(parts[space]) > 0,
        f"`search.{space}` must have at least one hyper-parameter",
        file=file,
        key=space,
        sections_present=present,
    )
    domains = {}
    for name, given in parts[space].items():
        try:
            domains[str(name)] = domain(given)
        except BadInput as wrong:
            raise BadInput(f"{file}: key `{space}.{name}`: {wrong}") from None
    fixed = {name: frozen(value) for name, value in parts["fixed"].items()}
    # Both sections share `first`: names that only the other section searches are ignored here.
    others = {name for key in present if key != space for name in _mapping(search, key, file)}
    elsewhere = others - set(domains)
    first = {name: frozen(value) for name, value in parts["first"].items() if name not in elsewhere} or None
    return Space(str(method), domains, fixed, first, experiment, file)


def sections_of(path: str | Path) -> tuple[str, ...]:
    """The sections of an experiment file's search space: ``space``, ``continuous``, or both.

    Raises:
        BadInput: The file cannot be read or is invalid.
    """
    search = _mapping(_read(Path(path)), "search", str(path))
    return tuple(name for name in _SECTIONS if search.get(name))


def load_experiment(path: str | Path) -> dict[str, Any]:
    """Read the experiment's fields of an experiment file, nested; its search space is not read.

    Raises:
        BadInput: The file cannot be read or is invalid.
    """
    return _experiment(_read(Path(path)), str(path))


def _experiment(content: Mapping[Any, Any], file: str) -> dict[str, Any]:
    """The fields of the experiment: everything but ``method`` and ``search``."""
    moved = [key for key in _SEARCH_KEYS if key in content]
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
    return {str(key): value for key, value in content.items() if key not in ("method", "search")}


def check(space: Space, hyper_parameters: type) -> Space:
    """Check a space against a method's hyper-parameters.

    Args:
        space: The space as it was read.
        hyper_parameters: The method's dataclass; a value that it refuses is refused here, before any trial.

    Returns:
        The space with every number converted to the type that the method declares (``1`` becomes ``1.0``).

    Raises:
        BadInput: The method has no such name (the message lists the nearest ones), a value has another type,
            or the method refuses a value.
    """
    known = (
        list(hyper_parameters.__dataclass_fields__)
        if hasattr(hyper_parameters, "__dataclass_fields__")
        else []
    )
    assert known, f"{hyper_parameters} is not a dataclass with fields"
    _refuse_unknown(space.domains, known, space.source, "")
    _refuse_unknown(space.fixed, known, space.source, "fixed.")
    checked = replace(
        space,
        domains={
            n: cast_domain(values, n, hyper_parameters, space.source) for n, values in space.domains.items()
        },
        fixed=cast_point(space.fixed, hyper_parameters, space.source, "fixed"),
        first=space.first and cast_point(space.first, hyper_parameters, space.source, "first"),
    )
    check_ranges(checked.domains, {**checked.fixed, **(checked.first or {})}, hyper_parameters, space.source)
    return checked


class _Loader(yaml.SafeLoader):
    """YAML that reads ``1e-4`` as a number (YAML 1.1 requires ``1.0e-4``) and refuses repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
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


def _read(path: Path) -> dict[Any, Any]:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise BadInput(f"{path}: a search space must be a readable file: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: a search space must be UTF-8 text.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise BadInput(f"{path}{line}: a search space must be well-formed YAML: {error.problem}.") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: a search space must be well-formed YAML: {error}.") from None
    require(isinstance(content, dict), "a search space must be a mapping", file=str(path), content=content)
    assert isinstance(content, dict)
    return content


def _mapping(content: Mapping[Any, Any], key: str, file: str) -> dict[str, Any]:
    value = content.get(key)
    if value is None:
        return {}
    require(isinstance(value, dict), f"`{key}` must map names to values", file=file, key=key, value=value)
    assert isinstance(value, dict)
    others = [name for name in value if not isinstance(name, str)]
    require(not others, "names must be strings", file=file, key=key, names=others)
    return value


def _refuse_unknown(names: Mapping[Any, Any], known: list[str], file: str, prefix: str) -> None:
    for name in names:
        if name not in known:
            raise BadInput(f"{file}: unknown key `{prefix}{name}`. {nearest(str(name), known)}")
