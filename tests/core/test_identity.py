"""Fingerprints: equal for equal meaning, different for different meaning, stable across processes."""

import subprocess
import sys
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
from rows import each_row

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import Spec, canonical, fingerprint, spec


class Thing:
    version: ClassVar[int] = 1

    def __init__(self, size: int, rate: float = 0.1, *, name: str = "a", runtime: int | None = None) -> None:
        self.size, self.rate, self.name, self.runtime = size, rate, name, runtime


@dataclass(frozen=True)
class Value:
    number: float
    part: Spec[Thing]
    where: str = field(default="here", metadata={"identity": False})


def test_an_explicit_default_keeps_the_fingerprint() -> None:
    assert fingerprint(spec(Thing, size=3)) == fingerprint(spec(Thing, size=3, rate=0.1, name="a"))


def test_every_argument_changes_the_fingerprint() -> None:
    prints = {fingerprint(spec(Thing, **k)) for k in ({"size": 3}, {"size": 4}, {"size": 3, "rate": 0.2})}
    assert len(prints) == 3


def test_a_number_of_numpy_names_the_same_artifact() -> None:
    assert canonical(np.float64(0.1)) == canonical(0.1)


def test_a_number_and_its_text_differ() -> None:
    assert len({fingerprint(1), fingerprint("1"), fingerprint(1.0), fingerprint(True)}) == 4


def test_runtime_arguments_are_not_part_of_the_fingerprint() -> None:
    part = spec(Thing, size=1)
    assert fingerprint(Value(1.0, part, "here")) == fingerprint(Value(1.0, part, "there"))
    assert fingerprint(Value(1.0, part)) != fingerprint(Value(2.0, part))


def test_a_raised_version_changes_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(spec(Thing, size=1))
    monkeypatch.setattr(Thing, "version", 2)
    assert fingerprint(spec(Thing, size=1)) != before


def test_the_fingerprint_is_the_same_in_another_process() -> None:
    program = "from stillhouse.values.data import Model; print(Model('ab', name='x').fingerprint)"
    other = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": _platform()},
    )
    from stillhouse.values.data import Model

    assert other.stdout.strip() == Model("ab", name="y").fingerprint


def test_build_passes_only_accepted_arguments() -> None:
    built = spec(Thing, size=2).build(runtime=7, unwanted=1)
    assert (built.size, built.runtime) == (2, 7)


def test_replace() -> None:
    assert spec(Thing, size=2).replace(size=5).build().size == 5


@each_row("value", [lambda: 1, object(), {1, 2}])
def test_a_value_without_identity_is_refused_by_name(value: object) -> None:
    with pytest.raises(BadInput, match=r"argument `name` of `.*Thing`: every .* must have a stable identity"):
        spec(Thing, size=1, name=value)


def test_a_misspelt_argument_is_refused_with_suggestions() -> None:
    with pytest.raises(BadInput, match=r"has no argument `rat`\. Did you mean rate"):
        spec(Thing, size=1, rat=2)


def test_canonical_is_json_independent_of_key_order() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert canonical((1, [2, None])) == [1, [2, None]]


def _platform() -> str:
    from pathlib import Path

    return str(Path(__file__).resolve().parents[2] / "platform")
