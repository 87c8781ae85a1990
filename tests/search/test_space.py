import dataclasses
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from rows import each_row

from stillhouse.core.errors import BadInput, require
from stillhouse.search.samplers import Search, grid
from stillhouse.search.space import Categorical, Float, Int, Space, check, load_space

ROOT = Path(__file__).resolve().parents[2]
Write = Callable[[str], Path]


@dataclass(frozen=True)
class Knobs:
    learning_rate: float = 1e-4
    batch_size: int = 64
    kernel: Literal["rbf", "imq"] = "rbf"
    layers: tuple[int, ...] = ()
    projection: int | None = None
    temperature: float = 0.1

    def __post_init__(self) -> None:
        require(self.temperature > 0, "temperature > 0", temperature=self.temperature)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(text: str) -> Path:
        path = tmp_path / "space.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return _write


GOOD = """
method: ibkd
teacher: {name: all-MiniLM-L6-v2}
sentences: {corpus: pydocs}
search:
  fixed: {batch_size: 128}
  space:
    learning_rate: [1e-5, 3e-5, 1.0e-4]
    layers: [[0, 2, 4], [0, 3]]
    projection: [128, null]
  continuous:
    learning_rate: {low: 1e-5, high: 1e-3, log: true}
    layers: [[0, 2, 4], [0, 3]]
    projection: {low: 32, high: 128, step: 32}
  first: {learning_rate: 1e-4, layers: [0, 3], projection: 128}
"""


def test_reads_numbers_that_yaml_takes_for_strings(write: Write) -> None:
    space = load_space(write(GOOD))
    assert space.domains["learning_rate"] == Categorical((1e-5, 3e-5, 1e-4))
    assert space.first == {"learning_rate": 1e-4, "layers": (0, 3), "projection": 128}
    assert load_space(write(GOOD), space="continuous").domains["learning_rate"] == Float(1e-5, 1e-3, True)
    plain = write("method: m\nsearch: {space: {a: [1E-4, -2e+3, .5e1, 1e5, 2.5, 3], b: ['1e-4', x1e4]}}")
    domains = load_space(plain).domains
    assert domains["a"] == Categorical((1e-4, -2e3, 5.0, 1e5, 2.5, 3))
    assert domains["b"] == Categorical(("1e-4", "x1e4"))


def test_reads_the_sections(write: Write) -> None:
    space = load_space(write(GOOD), space="continuous")
    assert (space.method, dict(space.fixed)) == ("ibkd", {"batch_size": 128})
    assert list(space.domains) == ["learning_rate", "layers", "projection"]
    assert space.domains["projection"] == Int(32, 128, 32)
    assert space.has_numeric and not load_space(write(GOOD)).has_numeric


@each_row(
    ("text", "words"),
    [
        ("method: m\nsearch:\n  space:\n    a: [1, 2\n    b: [3]\n", ["line 5", "well-formed YAML"]),
        ("method: m\nsearch:\n  space:\n    a: [1]\n    a: [2]\n", ["line 5", "`a`", "twice"]),
        ("method: m\nsearch:\n  space: {a: [1]}\n  space: {b: [1]}\n", ["line 4", "`space`", "twice"]),
        ("- a\n- b\n", ["must map names to values"]),
        ("", ["must map names to values"]),
        ("method: m\nsearch:\n  space: [a]\n", ["`space` must map names to values"]),
        ("method: m\n", ["`search.space` must have at least one hyper-parameter"]),
        ("method: m\nsearch:\n  space: {}\n", ["`search.space` must have at least one hyper-parameter"]),
        (
            "method: m\nsearch:\n  continuous: {a: {low: 1, high: 2}}\n",
            ["`search.space` must have at least one hyper-parameter", "continuous"],
        ),
        ("search:\n  space: {a: [1]}\n", ["`method`"]),
        ("method: m\nsearch:\n  spaces: {a: [1]}\n", ["`search.spaces`", "Did you mean space"]),
        ("method: m\nsearch:\n  space: {a: []}\n", ["`space.a`", "at least one value"]),
        ("method: m\nsearch:\n  space: {a: [1, 2, 1]}\n", ["`space.a`", "all be different", "repeated=[1]"]),
        ("method: m\nsearch:\n  space: {a: 3}\n", ["`space.a`", "fixed"]),
        ("method: m\nsearch:\n  space: {a: [{b: 1}]}\n", ["`space.a`", "a choice must be"]),
        ("method: m\nsearch:\n  space: {a: [.nan]}\n", ["`space.a`", "finite"]),
        ("method: m\nsearch:\n  space: {a: {low: 2, high: 1}}\n", ["`space.a`", "low < high", "low=2"]),
        ("method: m\nsearch:\n  space: {a: {low: 1.0, high: 1.0}}\n", ["`space.a`", "low < high"]),
        ("method: m\nsearch:\n  space: {a: {low: 0, high: 1, log: true}}\n", ["`space.a`", "low > 0"]),
        ("method: m\nsearch:\n  space: {a: {low: -1.0, high: 1.0, log: true}}\n", ["`space.a`", "low > 0"]),
        (
            "method: m\nsearch:\n  space: {a: {low: x, high: 1}}\n",
            ["`space.a`", "`low` must be a finite number"],
        ),
        ("method: m\nsearch:\n  space: {a: {low: 1, hihg: 2}}\n", ["`space.a`", "hihg", "high"]),
        ("method: m\nsearch:\n  space: {a: {low: 1}}\n", ["`space.a`", "`low` and `high`"]),
        (
            "method: m\nsearch:\n  space: {a: {low: 1, high: 4, step: 2}}\n",
            ["`space.a`", "whole number of steps"],
        ),
        ("method: m\nsearch:\n  space: {a: {low: 1.0, high: 4.0, step: 2}}\n", ["`space.a`", "step"]),
        (
            "method: m\nsearch:\n  space: {a: {low: 1, high: 4, step: 1, log: 7}}\n",
            ["`space.a`", "`log` must be true or false"],
        ),
        ("method: m\nsearch:\n  space: {a: [1]}\n  fixed: {a: 1}\n", ["either searched or fixed", "'a'"]),
        (
            "method: m\nsearch:\n  space: {a: [1]}\n  first: {b: 1}\n",
            ["first", "missing=['a']", "unknown=['b']"],
        ),
        ("method: m\nsearch:\n  space: {a: [1]}\n  first: {a: 2}\n", ["first.a", "within the space"]),
        (
            "method: m\nsearch:\n  space: {a: {low: 2, high: 8, step: 2}}\n  first: {a: 5}\n",
            ["first.a", "within"],
        ),
        ("method: m\nsearch: {space: {a: [1]}}\nspace: {a: [1]}\n", ["stand below `search:`", "Indent"]),
        ("method: m\nsearch: {space: {a: [1]}}\nexperiment: {corpus: x}\n", ["at the top of the file"]),
    ],
)
def test_refuses(write: Write, text: str, words: list[str]) -> None:
    path = write(text)
    with pytest.raises(BadInput) as refused:
        load_space(path)
    for word in ["space.yaml", *words]:
        assert word in str(refused.value)


def test_refuses_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        load_space(tmp_path / "nowhere.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"method: caf\xe9\n")
    with pytest.raises(BadInput, match="UTF-8"):
        load_space(tmp_path / "latin.yaml")


def test_refuses_a_section_that_does_not_exist(write: Write) -> None:
    with pytest.raises(BadInput, match="--section"):
        load_space(write(GOOD), space="grid")


def space_of(**domains: Any) -> Space:
    return Space("m", domains, source="s.yaml")


def test_check_casts_numbers_to_the_declared_types() -> None:
    given = Space(
        "m",
        {
            "learning_rate": Categorical((1, 0.5)),
            "batch_size": Float(16.0, 64.0),
            "temperature": Int(1, 2),
            "projection": Categorical((None, 128.0)),
            "layers": Categorical(((0, 2), ())),
        },
        fixed={"kernel": "imq"},
        first={
            "learning_rate": 1,
            "batch_size": 32.0,
            "temperature": 1,
            "projection": None,
            "layers": (0, 2),
        },
    )
    checked = check(given, Knobs)
    assert checked.domains["learning_rate"] == Categorical((1.0, 0.5))
    assert checked.domains["batch_size"] == Int(16, 64)
    assert checked.domains["temperature"] == Float(1.0, 2.0)
    assert [type(c) for c in checked.domains["projection"].choices] == [type(None), int]  # type: ignore[union-attr]
    assert checked.first is not None
    assert [type(v) for v in checked.first.values()] == [float, int, float, type(None), tuple]
    assert check(checked, Knobs) == checked


@each_row(
    ("space", "words"),
    [
        (space_of(lerning_rate=Categorical((1.0,))), ["`lerning_rate`", "learning_rate"]),
        (space_of(learning_rate=Categorical(("high",))), ["learning_rate", "float", "'high'"]),
        (space_of(learning_rate=Categorical((True,))), ["learning_rate", "float", "True"]),
        (space_of(batch_size=Categorical((64, 64.5))), ["batch_size", "int", "64.5"]),
        (space_of(batch_size=Float(0.5, 2.0)), ["batch_size", "int"]),
        (space_of(kernel=Categorical(("rbf", "linear"))), ["kernel", "linear"]),
        (space_of(kernel=Int(1, 2)), ["kernel"]),
        (space_of(layers=Categorical(((0, "a"),))), ["layers", "'a'"]),
        (space_of(temperature=Categorical((0.1, 0.0))), ["temperature > 0", "0.0"]),
        (space_of(temperature=Float(-1.0, 1.0)), ["temperature > 0", "-1.0"]),
    ],
)
def test_check_refuses(space: Space, words: list[str]) -> None:
    with pytest.raises(BadInput) as refused:
        check(space, Knobs)
    for word in ["s.yaml", *words]:
        assert word in str(refused.value)


def test_check_refuses_misspelt_fixed_names() -> None:
    space = Space("m", {"temperature": Categorical((0.1,))}, fixed={"batchsize": 1}, source="s.yaml")
    with pytest.raises(BadInput, match=r"fixed\.batchsize.*Did you mean batch_size"):
        check(space, Knobs)


def test_grid_has_every_point_once_in_an_order_of_its_seed() -> None:
    space = space_of(a=Categorical((1, 2)), b=Int(4, 8, 2), c=Categorical(("x",)))
    orders = [list(grid.candidates(Search(space, [], seed, 6, ["maximize"]))) for seed in (0, 0, 1)]
    assert space.grid_size() == len(orders[0]) == 6
    points = [{"a": a, "b": b, "c": "x"} for a in (1, 2) for b in (4, 6, 8)]
    assert all(order.count(point) == 1 for order in orders for point in points)
    assert orders[0] == orders[1] != orders[2]
    infinite = space_of(a=Float(0.0, 1.0))
    assert infinite.points is None
    with pytest.raises(BadInput, match=r"ranges=\['a'\]"):
        infinite.grid_size()


def test_unit_cube_covers_every_value_alike() -> None:
    units = [(i + 0.5) / 1200 for i in range(1200)]
    for domain in (Categorical(("a", "b", "c")), Int(10, 30, 10)):
        counts = {value: [domain.at(u) for u in units].count(value) for value in map(domain.nth, range(3))}
        assert set(counts.values()) == {400}
    assert Float(1e-4, 1.0, True).at(0.5) == pytest.approx(1e-2)
    assert Float(2.0, 4.0).at(0.25) == 2.5
    magnitudes = [Int(1, 999, log=True).at(u) for u in units]
    assert sum(m < 10 for m in magnitudes) == pytest.approx(400, abs=2)
    assert min(magnitudes) == 1 and max(magnitudes) > 990
    for wide in (Float(1e-4, 0.3, True), Int(3, 7), Int(3, 7, log=True)):
        assert wide.holds(wide.at(0.0)) and wide.holds(wide.at(1.0 - 1e-16)) and wide.holds(wide.at(1.0))


def test_fingerprint_covers_only_the_search(write: Write) -> None:
    space = load_space(write(GOOD))
    assert dataclasses.replace(space, source="elsewhere").fingerprint == space.fingerprint
    changed = [
        load_space(write(GOOD), space="continuous"),
        load_space(write(GOOD.replace("3e-5", "4e-5"))),
        load_space(write(GOOD.replace("batch_size: 128", "batch_size: 64"))),
        load_space(write(GOOD.replace("layers: [0, 3]", "layers: [0, 2, 4]"))),
    ]
    assert len({space.fingerprint, *[other.fingerprint for other in changed]}) == 5
    assert load_space(write(GOOD.replace("pydocs", "other"))).fingerprint == space.fingerprint


def test_without_removes_a_name_everywhere(write: Write) -> None:
    space = load_space(write(GOOD)).without("layers", "not there")
    assert list(space.domains) == ["learning_rate", "projection"]
    assert space.first == {"learning_rate": 1e-4, "projection": 128}
    assert space.grid_size() == 6


def test_probes_contain_every_extreme_and_the_fixed_values() -> None:
    space = Space("m", {"a": Categorical((1, 2, 3)), "b": Float(0.1, 0.9)}, {"c": 7}, {"a": 2, "b": 0.5})
    probes = list(space.probes())
    assert {p["a"] for p in probes} == {1, 2, 3} and {0.1, 0.9} <= {p["b"] for p in probes}
    assert all(p["c"] == 7 and set(p) == {"a", "b", "c"} for p in probes)


def test_reading_a_space_imports_nothing_heavy() -> None:
    code = "import sys, stillhouse.search.space; print({'ray', 'optuna', 'torch'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "platform")},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "set()", done.stderr


def test_first_applies_to_both_sections(tmp_path: Path) -> None:
    path = tmp_path / "both.yaml"
    path.write_text(
        "method: m\nsearch:\n  space: {a: [1, 2]}\n"
        "  continuous: {a: {low: 1, high: 2}, b: {low: 0.1, high: 0.2}}\n"
        "  first: {a: 1, b: 0.1}\n  second: {b: 0.2}\n"
    )
    assert load_space(path).first == {"a": 1}
    assert load_space(path, space="continuous").seeded == ({"a": 1, "b": 0.1}, {"a": 1, "b": 0.2})
    path.write_text(path.read_text().replace("second: {b: 0.2}", "second: {b: 0.3}"))
    with pytest.raises(BadInput, match="`second` must lie within the space"):
        load_space(path, space="continuous")
