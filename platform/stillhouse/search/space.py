"""Search spaces: a YAML file says what is searched, what is fixed, and which point is tried first."""

import itertools
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
_KEYS = ["method", "experiment", "fixed", "first", *_SECTIONS]


@dataclass(frozen=True)
class Space:
    """What is searched. Lists of the file are tuples here.

    Attributes:
        method: Name of the method, such as ``ibkd``.
        domains: Hyper-parameter to the values it may take, in the order of the file.
        fixed: Hyper-parameters that are not searched, with their value.
        first: The published configuration: a value for every searched hyper-parameter.
        experiment: What the file fixes besides: teacher, corpus, student, evaluation set, budget.
        source: The file, for messages.
        set_aside: What `without` took out of ``first``, to tell of.
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
        """Check that something is searched, nothing twice, and that the first point lies inside."""
        where = {"file": self.source}
        require(
            len(self.domains) > 0, "the space names something", **where, remedy="Give a name and its values."
        )
        both = sorted(set(self.domains) & set(self.fixed))
        require(not both, "a hyper-parameter is either searched or fixed", **where, both=both)
        if self.first is None:
            return
        missing, more = set(self.domains) - set(self.first), set(self.first) - set(self.domains)
        require(
            not missing and not more,
            "`first` has a value for every searched hyper-parameter, and for no other",
            **where,
            key="first",
            missing=sorted(missing),
            unknown=sorted(more),
        )
        for name, value in self.first.items():
            inside = self.domains[name].holds(value)
            require(
                inside, "`first` lies within the space", **where, key=f"first.{name}", **{str(name): value}
            )

    @property
    def fingerprint(self) -> str:
        """Sixteen digits that change with anything that is searched, fixed or first."""
        return fingerprint(self)

    @property
    def has_numeric(self) -> bool:
        """Whether anything is a range of numbers, which quasi-random points need."""
        return any(not isinstance(values, Categorical) for values in self.domains.values())

    @property
    def points(self) -> int | None:
        """How many different configurations there are; None where a real range makes them endless."""
        size = 1
        for values in self.domains.values():
            if isinstance(values, Float):
                return None
            size *= values.size
        return size

    def grid_size(self) -> int:
        """Points of the grid.

        Raises:
            BadInput: A real range has no grid.
        """
        endless = [name for name, values in self.domains.items() if isinstance(values, Float)]
        require(
            not endless,
            "a grid has a list of values for every name",
            file=self.source,
            ranges=endless,
            remedy="List their values, or take another sampler.",
        )
        size = self.points
        assert size is not None
        return size

    def grid(self) -> Iterator[dict[str, Any]]:
        """Every point, the last name of the file changing fastest."""
        self.grid_size()
        columns = [
            [values.nth(i) for i in range(values.size)]
            for values in self.domains.values()
            if not isinstance(values, Float)
        ]
        for point in itertools.product(*columns):
            yield dict(zip(self.domains, point, strict=True))

    def at(self, units: Sequence[float]) -> dict[str, Any]:
        """The point at a place of the unit cube, one number in [0, 1) a name."""
        pairs = zip(self.domains.items(), units, strict=True)
        return {name: values.at(float(unit)) for (name, values), unit in pairs}

    def probes(self) -> Iterator[dict[str, Any]]:
        """Points that between them hold both ends of every range and every choice, the rest as in ``first``.

        Each carries the fixed values too: build a plan of each, and no value is refused in mid-sweep.
        """
        start = {n: v.low if isinstance(v, Float) else v.nth(0) for n, v in self.domains.items()}
        base = {**self.fixed, **start, **(self.first or {})}
        for name, values in self.domains.items():
            ends = values.choices if isinstance(values, Categorical) else (values.low, values.high)
            for value in ends:
                yield {**base, name: value}

    def without(self, *names: str) -> "Space":
        """The same space with some names neither searched nor in ``first`` (``distil_epochs`` under ASHA)."""
        first = self.first and {name: value for name, value in self.first.items() if name not in names}
        kept = {name: values for name, values in self.domains.items() if name not in names}
        aside = {name: value for name, value in (self.first or {}).items() if name in names}
        return replace(self, domains=kept, first=first, set_aside={**self.set_aside, **aside})


def load_space(
    path: str | Path, *, space: str = "space", allowed_experiment_keys: Sequence[str] | None = None
) -> Space:
    """Read a search space.

    Args:
        path: The YAML file, with the keys ``method``, ``experiment``, ``fixed``, ``first``, ``space`` and
            ``continuous``.
        space: Which section is searched: ``space`` (the grid) or ``continuous``.
        allowed_experiment_keys: What ``experiment`` may fix; None leaves that to the caller.

    Raises:
        BadInput: The file cannot be read, or says what cannot be; the message names the file and the key.
    """
    file = str(path)
    require(space in _SECTIONS, f"--section is one of {', '.join(_SECTIONS)}", section=space)
    content = _read(Path(path))
    _known(content, _KEYS, file, "")
    method = content.get("method")
    require(isinstance(method, str), "`method` names a method", file=file, key="method", method=method)
    parts = {key: _mapping(content, key, file) for key in ("experiment", "fixed", "first", space)}
    if allowed_experiment_keys is not None:
        _known(parts["experiment"], list(allowed_experiment_keys), file, "experiment.")
    present = [key for key in _SECTIONS if content.get(key)]
    require(
        len(parts[space]) > 0, f"`{space}` names something", file=file, key=space, sections_present=present
    )
    domains = {}
    for name, given in parts[space].items():
        try:
            domains[str(name)] = domain(given)
        except BadInput as wrong:
            raise BadInput(f"{file}: key `{space}.{name}`: {wrong}") from None
    fixed = {name: frozen(value) for name, value in parts["fixed"].items()}
    # `first` serves both sections: what only the other one searches is set aside here.
    elsewhere = {name for key in present if key != space for name in _mapping(content, key, file)} - set(
        domains
    )
    first = {name: frozen(value) for name, value in parts["first"].items() if name not in elsewhere} or None
    return Space(str(method), domains, fixed, first, parts["experiment"], file)


def check(space: Space, hyper_parameters: type) -> Space:
    """Check a space against a method's hyper-parameters.

    Args:
        space: As it was read.
        hyper_parameters: The method's dataclass; a value that it refuses is refused here, before any trial.

    Returns:
        The space with every number of the type that the method declares (``1`` becomes ``1.0``).

    Raises:
        BadInput: A name that the method does not have (the near ones are listed), a value of another type,
            or a value that the method refuses.
    """
    known = (
        list(hyper_parameters.__dataclass_fields__)
        if hasattr(hyper_parameters, "__dataclass_fields__")
        else []
    )
    assert known, f"{hyper_parameters} is not a dataclass with fields"
    _known(space.domains, known, space.source, "")
    _known(space.fixed, known, space.source, "fixed.")
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
    """YAML that reads ``1e-4`` as a number (YAML 1.1 wants ``1.0e-4``) and refuses a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key `{key}` is there twice", problem_mark=key_node.start_mark
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
    require(isinstance(content, dict), "a search space is a mapping of keys", file=str(path), content=content)
    assert isinstance(content, dict)
    return content


def _mapping(content: Mapping[Any, Any], key: str, file: str) -> dict[str, Any]:
    value = content.get(key)
    if value is None:
        return {}
    require(
        isinstance(value, dict), f"`{key}` is a mapping of names to values", file=file, key=key, value=value
    )
    assert isinstance(value, dict)
    strange = [name for name in value if not isinstance(name, str)]
    require(not strange, "names are words", file=file, key=key, names=strange)
    return value


def _known(names: Mapping[Any, Any], known: list[str], file: str, prefix: str) -> None:
    for name in names:
        if name not in known:
            raise BadInput(f"{file}: `{prefix}{name}` is not known here. {nearest(str(name), known)}")
