"""Search spaces: a YAML file with the searched domains, the fixed values and the first point."""

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from stillhouse.core.errors import BadInput, nearest, refusing, require
from stillhouse.core.identity import fingerprint
from stillhouse.search.domains import Categorical, Domain, Float, Int, cast_domain, cast_point, domain, frozen
from stillhouse.search.experiment_file import SEARCH_KEYS, load_base, load_search, mapping_at

__all__ = ["Categorical", "Domain", "Float", "Int", "Space", "check", "load_space"]

_SECTIONS = ("space", "continuous")
_SAMPLE = 256
"""Number of points that stand for a larger space."""


@dataclass(frozen=True)
class Space:
    """A search space. Lists in the file are tuples here.

    Attributes:
        method: Name of the method, such as ``ibkd``.
        domains: Domain of each searched hyper-parameter, in the order of the file.
        fixed: Values of the hyper-parameters that are not searched.
        first: The published configuration: a value for every searched hyper-parameter.
        second: A configuration to try next; None leaves the choice to the sampler.
        source: The file, for messages.
        set_aside: Values that `without` removed from ``first``, for messages.
        section: The section of the file that is searched.
        start: A point that the method plans, for what needs any point; empty takes the first values.
    """

    version: ClassVar[int] = 1
    method: str
    domains: Mapping[str, Domain]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    first: Mapping[str, Any] | None = None
    source: str = field(default="search space", metadata={"identity": False})
    set_aside: Mapping[str, Any] = field(default_factory=dict, metadata={"identity": False})
    section: str = field(default="space", metadata={"identity": False})
    start: Mapping[str, Any] = field(default_factory=dict, metadata={"identity": False})
    second: Mapping[str, Any] | None = field(default=None, metadata={"identity": "unless_default"})

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
        for key, point in (("first", self.first), ("second", self.second)):
            if point is not None:
                self._check_point(key, point)

    def _check_point(self, key: str, point: Mapping[str, Any]) -> None:
        missing, more = set(self.domains) - set(point), set(point) - set(self.domains)
        require(
            not missing and not more,
            f"`{key}` must have a value for every searched hyper-parameter and for no other",
            file=self.source,
            key=key,
            missing=sorted(missing),
            unknown=sorted(more),
        )
        for name, value in point.items():
            require(
                self.domains[name].holds(value),
                f"`{key}` must lie within the space",
                file=self.source,
                key=f"{key}.{name}",
                **{str(name): value},
            )

    @property
    def seeded(self) -> tuple[Mapping[str, Any], ...]:
        """The points that come before those of the sampler."""
        return tuple(point for point in (self.first, self.second) if point)

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits over everything that is searched, fixed or tried first."""
        return fingerprint(self)

    @property
    def has_numeric(self) -> bool:
        """True if any domain is a numeric range, which quasi-random points need."""
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

    def probes(self, refused: Callable[[dict[str, Any]], object] | None = None) -> Iterator[dict[str, Any]]:
        """Yield points that cover both ends of every range and every choice, the rest as in ``first``.

        Fixed values are included. Values may be refused together with others: where a point is refused,
        another one with the same value takes its place, if there is one that is not.
        """
        base = {**self.any_point, **(self.first or {})}
        for name, values in self.domains.items():
            for value in ends_of(values):
                point = {**base, name: value}
                if refused is not None and refused(point):
                    others = ({**other, name: value} for other in self.sample())
                    point = next((other for other in others if not refused(other)), point)
                yield point

    @property
    def any_point(self) -> dict[str, Any]:
        """A point of the space, with the fixed values: ``start``, where that is known."""
        return {**self.fixed, **{name: ends_of(each)[0] for name, each in self.domains.items()}, **self.start}

    def sample(self) -> Iterator[dict[str, Any]]:
        """Yield every point of a small space, and random points of a larger one, with the fixed values."""
        if self.points is not None and self.points <= _SAMPLE:
            columns = [
                [values.nth(place) for place in range(values.size)]
                for values in self.domains.values()
                if not isinstance(values, Float)
            ]
            for point in itertools.product(*columns):
                yield {**self.fixed, **dict(zip(self.domains, point, strict=True))}
            return
        generator = random.Random(0)
        for _ in range(_SAMPLE):
            yield {**self.fixed, **self.at([generator.random() for _ in self.domains])}

    def without(self, *names: str) -> "Space":
        """Remove names from the searched ones and the seeded points (the epochs with a scheduler)."""
        first, second = (
            point and {name: value for name, value in point.items() if name not in names}
            for point in (self.first, self.second)
        )
        kept = {name: values for name, values in self.domains.items() if name not in names}
        aside = {name: value for name, value in (self.first or {}).items() if name in names}
        start = {name: value for name, value in self.start.items() if name in kept}
        aside = {**self.set_aside, **aside}
        return replace(self, domains=kept, first=first, second=second, set_aside=aside, start=start)


def load_space(path: str | Path, *, space: str = "space", scale: str = "", data_root: str = "") -> Space:
    """Read the search space of an experiment file.

    Args:
        path: The YAML file: ``method`` and its ``values``, which are fixed unless they are searched, and
            ``search`` with ``fixed``, ``first``, ``second`` (its changes of ``first``), ``space`` and
            ``continuous``.
        space: The section that is searched: ``space`` (the grid) or ``continuous``.
        scale: Name of a scale of the file; empty takes the full size.
        data_root: Folder that ``$STILLHOUSE_DATA`` stands for; empty takes the environment's.

    Raises:
        BadInput: The file cannot be read or is invalid; the message names the file and the key.
    """
    file = str(path)
    require(space in _SECTIONS, f"--section must be one of {', '.join(_SECTIONS)}", section=space)
    base, search = load_base(path, scale=scale, data_root=data_root), load_search(path, scale=scale)
    _refuse_unknown(search, list(SEARCH_KEYS), file, "search.")
    parts = {key: mapping_at(search, key, file) for key in ("fixed", "first", "second", space)}
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
    stated = {name: value for name, value in base.values.items() if name not in domains}
    fixed = {name: frozen(value) for name, value in {**stated, **parts["fixed"]}.items()}
    # Both sections share `first`: names that only the other section searches are ignored here.
    others = {name for key in present if key != space for name in mapping_at(search, key, file)}
    elsewhere = others - set(domains)
    first, changes = (
        {name: frozen(value) for name, value in parts[key].items() if name not in elsewhere}
        for key in ("first", "second")
    )
    second = {**first, **changes} if changes else None
    return Space(base.method, domains, fixed, first or None, file, section=space, second=second)


def sections_of(path: str | Path) -> tuple[str, ...]:
    """The sections of an experiment file's search space: ``space``, ``continuous``, or both.

    Raises:
        BadInput: The file cannot be read or is invalid.
    """
    search = load_search(path)
    return tuple(name for name in _SECTIONS if search.get(name))


def check(space: Space, hyper_parameters: type) -> Space:
    """Check a space against a method's hyper-parameters, before any trial.

    Returns:
        The space with every number converted to the type that the method declares (``1`` becomes ``1.0``).

    Raises:
        BadInput: The method has no such name (the message lists the nearest ones), a value has another type,
            or the method refuses a value.
    """
    known = [field.name for field in dataclasses.fields(hyper_parameters)]
    _refuse_unknown(space.domains, known, space.source, "")
    _refuse_unknown(space.fixed, known, space.source, "fixed.")
    checked = replace(
        space,
        domains={
            n: cast_domain(values, n, hyper_parameters, space.source) for n, values in space.domains.items()
        },
        fixed=cast_point(space.fixed, hyper_parameters, space.source, "fixed"),
        first=space.first and cast_point(space.first, hyper_parameters, space.source, "first"),
        second=space.second and cast_point(space.second, hyper_parameters, space.source, "second"),
    )
    _check_values(checked, hyper_parameters)
    return checked


def ends_of(values: Domain) -> tuple[Any, ...]:
    """Return the choices of a domain, or the ends of its range."""
    return values.choices if isinstance(values, Categorical) else (values.low, values.high)


def _check_values(space: Space, hyper_parameters: type) -> None:
    """Build the dataclass with each end of each domain.

    Raises:
        BadInput: The dataclass refuses a value, whatever the others are.
    """
    fields = [field for field in dataclasses.fields(hyper_parameters) if field.init]
    needed = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]
    if set(needed) - set(space.fixed) - set(space.domains):
        return

    refusal = refusing(lambda point: hyper_parameters(**point))
    probes = space.probes(refusal)
    for name, values in space.domains.items():
        for value in ends_of(values):
            if refused := refusal(next(probes)):
                raise BadInput(f"{space.source}: key `{name}`, value {value!r}: {refused}")


def _refuse_unknown(names: Mapping[Any, Any], known: list[str], file: str, prefix: str) -> None:
    for name in names:
        if name not in known:
            raise BadInput(f"{file}: unknown key `{prefix}{name}`. {nearest(str(name), known)}")
