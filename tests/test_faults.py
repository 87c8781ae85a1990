"""The fault suite itself: what it injects is injected, and what does not hold is noticed.

The suite runs with `make faults`; here it meets a small piece of work that is right, and others that are not.
"""

import dataclasses
import importlib
import json
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from stillhouse.core.artifacts import (
    Workspace,
    read_json,
    remove_leftovers,
    write_atomically,
    write_json,
    write_manifest,
)
from stillhouse.core.integrity import is_whole

FAULTS = Path(__file__).resolve().parent.parent / "faults"
MODULES = ("children", "damage", "system", "scenarios", "injection", "page")


@pytest.fixture(scope="module")
def suite() -> Iterator[Any]:
    """The suite's modules by name; they are removed again, as their names are short."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FAULTS))
        yield {name: importlib.import_module(name) for name in MODULES}
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "") or "").startswith(str(FAULTS)):
            del sys.modules[name]


def right(root: Path) -> int:
    """Write three artifacts, each after looking at what is there, as the package does."""
    workspace = Workspace(root)
    remove_leftovers(root)
    for number in range(3):
        folder = workspace.folder("stores") / f"store-{number}"
        remove_leftovers(folder)
        if not is_whole(folder, contents=True):
            write_atomically(folder / "part-00000.arrow", bytes([number]) * 1000)
            counts = {"rows": 5, "input_rows": 7, "duplicates": 1, "quarantined": 1}
            write_manifest(folder, counts)
    return 0


def trusting(root: Path) -> int:
    """Trust whatever is there."""
    done = [(root / f"stores/store-{number}/manifest.json").exists() for number in range(3)]
    return 0 if all(done) else right(root)


def careless(root: Path) -> int:
    """Leave a temporary file behind where it is started twice."""
    if (root / "workspace.json").exists():
        write_json(root / "stores" / ".left.tmp", {})
    return right(root)


def forgetful(root: Path) -> int:
    """Count the rows anew where it is started twice, and wrongly."""
    again = (root / "workspace.json").exists()
    right(root)
    if again:
        path = root / "stores/store-0/manifest.json"
        path.write_text(json.dumps({**read_json(path), "rows": 4}))
    return 0


def stuck(root: Path) -> int:
    """Never come to an end where it is started twice."""
    again = (root / "workspace.json").exists()
    if again:
        time.sleep(60)
    return right(root)


@pytest.fixture(scope="module")
def scenario(suite: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A scenario that has been run undisturbed."""
    scenarios = suite["scenarios"]
    learnt = scenarios.Scenario("toy", right, scenarios.signature)
    scenarios.learn(learnt, tmp_path_factory.mktemp("toy"))
    return learnt


def inject(suite: Any, scenario: Any, folder: Path, **fault: Any) -> Any:
    injection = suite["injection"].Injection("a fault", "toy", fault.pop("base", "empty"), 1, **fault)
    return suite["injection"].carry_out(injection, scenario, folder)


def killed(suite: Any, call: str, number: int) -> Callable[[Any, random.Random], str]:
    def prepare(calls: Any, chance: random.Random) -> str:
        calls.on(call, number, before=suite["system"].dies_of(signal.SIGKILL))
        return f"killed before {call} {number}"

    return prepare


@pytest.mark.parametrize("call", ["replace", "sync", "create"])
@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_death_at_any_call_is_recovered_by_work_that_is_right(
    suite: Any, scenario: Any, tmp_path: Path, call: str, number: int
) -> None:
    result = inject(suite, scenario, tmp_path, prepare=killed(suite, call, number), allowed=(-9,))
    assert result.codes == (-9, 0) and result.problems == () and result.recovered
    assert (result.lost, result.doubled, result.equal) == (0, 0, True)


@pytest.mark.parametrize(
    ("work", "problem"),
    [
        (careless, "left behind: stores/.left.tmp"),
        (forgetful, "not equal to the undisturbed run: stores/store-0"),
        (stuck, "attempt 2 took longer than 1 s"),
    ],
)
def test_work_that_is_wrong_after_a_death_is_noticed(
    suite: Any,
    scenario: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[Path], int],
    problem: str,
) -> None:
    monkeypatch.setattr(suite["injection"], "ATTEMPTS", 1)
    prepare, wrong = killed(suite, "replace", 3), dataclasses.replace(scenario, work=work)
    result = inject(suite, wrong, tmp_path, prepare=prepare, allowed=(-9,), limit=1.0)
    assert problem in result.problems, result
    assert not result.recovered and (result.lost == 1) == (work is forgetful)


@pytest.mark.parametrize("name", ["one bit flipped", "truncated", "deleted", "a block of zeros"])
@pytest.mark.parametrize("work", [right, trusting])
def test_damage_is_mended_or_counts_as_reported(
    suite: Any, scenario: Any, tmp_path: Path, name: str, work: Callable[[Path], int]
) -> None:
    def damage(root: Path, chance: random.Random) -> str:
        suite["damage"].DAMAGES[name](root / "stores/store-1/part-00000.arrow", chance)
        return name

    scenario = dataclasses.replace(scenario, work=work)
    result = inject(suite, scenario, tmp_path, base="finished", damage=damage)
    assert result.codes == (0,) and result.equal
    assert result.reported == (work is trusting)


def test_every_damage_changes_the_file(suite: Any, tmp_path: Path) -> None:
    for name, damage in suite["damage"].DAMAGES.items():
        path = tmp_path / "stores" / name / "part-00000.arrow"
        other = tmp_path / "stores" / "other" / "part-00000.arrow"
        for file, content in ((path, bytes(range(1, 256)) * 9), (other, b"other")):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        before = path.read_bytes()
        damage(path, random.Random(1))
        assert not path.exists() or path.read_bytes() != before, name


def test_a_call_that_fails_fails_once_or_from_then_on(suite: Any, tmp_path: Path) -> None:
    def work(root: Path) -> int:
        failures = 0
        for _ in range(4):
            try:
                (root / "a").open("w").close()
            except PermissionError:
                failures += 1
        return failures

    for persistent, expected in ((False, 1), (True, 3)):
        (tmp_path / "runs").mkdir(exist_ok=True)

        def prepare(persistent: bool = persistent) -> None:
            calls = suite["system"].Calls(tmp_path / "runs", suite["children"].Counters())
            fail = suite["system"].fails_with(13)
            calls.on("create", 2, before=fail, persistent=persistent)
            calls.install()

        ended = suite["children"].run_function(
            lambda: work(tmp_path / "runs"), tmp_path / "printed", limit=20, prepare=prepare
        )
        assert ended.code == expected, ended.output


def test_the_page_states_what_was_run(suite: Any, tmp_path: Path) -> None:
    made = suite["injection"].Result
    results = [
        made("a flip", "embed", "finished", 1, "", (0,), files=2, stall=0.25),
        made(
            "a flip", "embed", "finished", 2, "x", (1, 0), problems=("it ended with 1",), lost=3, equal=False
        ),
    ]
    suite["page"].write_page(
        tmp_path / "faults.md", results, seed=7, listed=5, seconds=60.0, limits="90 s", notice="5 s"
    )
    text = (tmp_path / "faults.md").read_text()
    assert "**2 injections, 1 recovered, 3 rows lost or doubled. The time was up before the other 3" in text
    assert "| a flip | 2 | 1 | 3 | 1 of 2 | 2 files | 0.2 s |" in text
    assert "a flip (embed, seed 2): x. Exit codes 1, 0. it ended with 1." in text


def test_vectors_may_differ_by_rounding_and_by_no_more(suite: Any, tmp_path: Path) -> None:
    def store(name: str, vectors: list[list[float]], **counts: int) -> Path:
        folder = tmp_path / name / "stores" / "store-0"
        folder.mkdir(parents=True)
        rows = pa.array(vectors, pa.list_(pa.float16(), 2))
        with pa.ipc.new_file(str(folder / "part-00000.arrow"), pa.schema([("embedding", rows.type)])) as out:
            out.write_batch(pa.record_batch([rows], ["embedding"]))
        write_manifest(folder, {"rows": len(vectors), "input_rows": 2, "duplicates": 0, **counts})
        return tmp_path / name

    same = suite["scenarios"].same_to_rounding
    first = store("first", [[0.6, 0.8], [1.0, 0.0]])
    keys = ["stores/store-0"]
    assert same(store("rounded", [[0.603, 0.797], [1.0, 0.0]]), first, keys)
    assert not same(store("swapped", [[1.0, 0.0], [0.6, 0.8]]), first, keys)
    assert not same(store("shorter", [[0.6, 0.8]]), first, keys)
    assert not same(store("counted", [[0.6, 0.8], [1.0, 0.0]], duplicates=1), first, keys)
    assert not same(first, first, ["stages/mse-0"]), "what is not there is not the same"
