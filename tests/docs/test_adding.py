"""CONTRIBUTING is right: suites, samplers, schedulers, teachers and rules of mining are added by one file."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from stillhouse.cli.main import main
from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.evaluation import benchmarks
from stillhouse.methods import load_method
from stillhouse.search import samplers, schedulers
from stillhouse.search.samplers import Search
from stillhouse.search.schedulers import load_scheduler
from stillhouse.search.searcher import propose
from stillhouse.search.space import Int, Space
from stillhouse.sweeps.checks import search_space
from stillhouse.teachers import kinds

ROOT = Path(__file__).resolve().parents[2]
SUITE = '''
"""The length of a model's vector for one text."""

from stillhouse.core.errors import require
from stillhouse.core.types import Encoder
from stillhouse.evaluation.benchmark import Benchmark, Options
from stillhouse.evaluation.items import Figures

NEEDS_DATA = False
MTEB_TASKS = ()
FLAGS = {"repeats": {"type": "int", "metavar": "N", "help": "how often the word is repeated (1)"}}


def prepare(root: str, options: Options) -> Benchmark:
    """Check the flag."""
    repeats = options.flag("repeats", 1)
    require(repeats >= 1, "repeats >= 1", repeats=repeats)

    def measure(model: Encoder) -> Figures:
        return {"word": {"dim": float(model.encode(["cat " * repeats]).shape[1]), "repeats": float(repeats)}}

    return Benchmark(measure)
'''
SAMPLER = '''
"""The corner of the space, then its neighbour."""

from stillhouse.core.errors import require


def check(space):
    require(len(space.domains) < 3, "fewer than 3 hyper-parameters", searched=len(space.domains))


def candidates(search):
    yield search.space.at([0.0] * len(search.space.domains))
    yield search.space.at([0.999] * len(search.space.domains))
'''
SCHEDULER = '''
"""Stops every trial at once."""


class Impatient:
    def stops(self, number, examples, value):
        return True

    def completed(self, number):
        pass


def rule(full_budget):
    return Impatient()
'''


TEACHER = '''
"""Vectors in an .npz, each under the SHA-256 of its text."""

import hashlib
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stillhouse.core.artifacts import sha256_of
from stillhouse.corpora.tables import Texts
from stillhouse.teachers.kinds import TeacherKind
from stillhouse.teachers.shards import write_shard
from stillhouse.teachers.vector_files import FilesEncoder, NoVector
from stillhouse.values.data import Teacher

aside = {"identity": False}


@dataclass(frozen=True)
class Archive(Teacher):
    sha256: str
    normalize: bool = False
    width: int = field(default=0, metadata=aside)
    name: str = field(default="", metadata=aside)
    source: str = field(default="", metadata=aside)
    maker, imported = "archive", True


class ArchiveEncoder(FilesEncoder):
    def encoded(self, role, texts):
        vectors = np.load(self._vectors.source)
        try:
            return np.stack([vectors[hashlib.sha256(text.encode()).hexdigest()] for text in texts])
        except KeyError as missing:
            raise NoVector(f"no vector of the text {missing}") from None


class Archives(TeacherKind):
    def find(self, choice):
        width = len(next(iter(np.load(choice.vectors).values())))
        return Archive(sha256_of(Path(choice.vectors)), False, width, choice.own_name, choice.vectors)

    def encoder(self, teacher, max_length, device):
        return ArchiveEncoder(teacher), None

    def shards(self, works, missing, actors, told):
        for number, part in missing:
            start, work = time.perf_counter(), works[number]
            texts = Texts(work.texts_folder).shard(part)
            vectors_NE = ArchiveEncoder(work.store.teacher).encode(texts)
            yield number, write_shard(work, part, vectors_NE, {}, tokens=0, start=start)
'''


def add(package: ModuleType, name: str, text: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Write a module into a folder that a package also looks in."""
    (folder / f"{name}.py").write_text(text)
    patch.setattr(package, "__path__", [*package.__path__, str(folder)])
    patch.delitem(sys.modules, f"{package.__name__}.{name}", raising=False)


def test_a_suite_and_its_flag_are_found_by_its_file(
    tmp_path: Path,
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluate = ["evaluate", str(tiny_model), "--root", str(tmp_path / "runs"), "--device", "cpu"]
    report = ["--json", str(tmp_path / "report.json")]
    assert main([*evaluate, "--suite", "dims"]) == 2
    assert "unknown suite `dims`" in capsys.readouterr().err
    add(benchmarks, "dims", SUITE, tmp_path, monkeypatch)
    assert main([*evaluate, "--suite", "dims", "--repeats", "3", *report]) == 0
    found = json.loads((tmp_path / "report.json").read_text())
    assert found["dims"] == {"word": {"dim": 32.0, "repeats": 3.0}}
    assert main([*evaluate, "--suite", "dims", "--repeats", "0"]) == 2
    assert "repeats >= 1" in capsys.readouterr().err
    assert main([*evaluate, "--suite", "sts", "--repeats", "3"]) == 2
    assert "--repeats goes with --suite dims" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["evaluate", "--help"])
    assert "dims: how often the word is repeated (1)" in capsys.readouterr().out


def test_the_flags_of_suites_are_read_without_importing_a_suite() -> None:
    program = (
        "import sys; from stillhouse.evaluation.benchmarks import suite_flags\n"
        "print([flag.option for flag in suite_flags() if flag.suite == 'geometry'])\n"
        "print([name for name in ('numpy', 'torch') if name in sys.modules])"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "platform")}
    ran = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[:2] == ["['--figures', '--texts', '--count']", "[]"]


def test_a_sampler_is_found_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add(samplers, "corner", SAMPLER, tmp_path, monkeypatch)
    space = Space("mse", {"batch_size": Int(4, 6)})
    assert propose("corner", Search(space, [], 0, 8, ("maximize",))) == {"batch_size": 4}
    shipped = ROOT / "search_spaces" / "ibkd.yaml"
    with pytest.raises(BadInput, match="fewer than 3 hyper-parameters"):
        search_space(load_method("ibkd"), shipped, sampler="corner")
    with pytest.raises(SystemExit):
        main(["sweep", "--help"])
    assert "corner, grid, qmc, random or tpe" in capsys.readouterr().out


def test_a_teacher_is_found_by_its_file(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A student is trained on its vectors."""
    texts = [f"the cat {word} on the mat number {n}" for n in range(60) for word in ("sat", "ran")]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    random = np.random.default_rng(0)
    vectors: Any = {hashlib.sha256(text.encode()).hexdigest(): random.random(8, np.float32) for text in texts}
    np.savez(tmp_path / "vectors.npz", **vectors)
    archive = ["--set", "teacher.kind=archive", "--set", f"teacher.vectors={tmp_path / 'vectors.npz'}"]
    train = ["train", "mse", *archive, "--set", "teacher.name=mine", "--student", str(tiny_model), "--local"]
    train += ["--corpus", str(tmp_path / "texts.txt"), "--distil-budget", "64", "--set", "batch_size=16"]
    train += ["--root", str(tmp_path / "runs"), "--device", "cpu", "--json", str(tmp_path / "report.json")]
    assert main(train) == 2 and "unknown kind of teacher" in capsys.readouterr().err
    add(kinds, "archive", TEACHER, tmp_path, monkeypatch)
    assert main(train) == 0, capsys.readouterr().err
    made = [read_manifest(path.parent) for path in (tmp_path / "runs" / "stores").glob("*/manifest.json")]
    assert {(each["dim"], each["teacher"]["name"]) for each in made} == {(8, "mine")}


def test_a_scheduler_is_found_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add(schedulers, "impatient", SCHEDULER, tmp_path, monkeypatch)
    rule = load_scheduler("impatient").rule(100)
    assert rule is not None and rule.stops(0, 1, 0.5)
    with pytest.raises(SystemExit):
        main(["sweep", "--help"])
    assert "impatient" in capsys.readouterr().out


FIELD = "    max_gap: float = 2.0\n"
MEANING = (
    "        max_gap: Largest difference between the positive's cosine and a negative's; 2 allows all.\n"
)
RANGE = '        require(self.max_gap > 0, "max_gap > 0", max_gap=self.max_gap)\n'
MASK = """        if self.max_gap < 2:
            yield cosine_QN < positive_Q1 - self.max_gap
"""
MINE = """
import torch
import numpy as np
from stillhouse.training.negative_selection import nearest
from stillhouse.values.data import AllRows, Examples, Mined, Model, Store, TextTable
from stillhouse.values.mining import Mining

def plan(**values):
    texts = TextTable("0" * 64)
    store, pairs = Store(texts, Model("1" * 64)), Examples({"query": texts, "passage": texts}, AllRows())
    return Mined(pairs, store, store, 3, Mining(relative_margin=-1.0, **values))

angles = torch.tensor([0.0, 0.2, 0.4, 1.2])
passages = torch.stack([angles.cos(), angles.sin()], dim=1)
own = (np.array([0]), np.array([0]))
for rule in (plan(), plan(max_gap=0.5)):
    found = nearest(passages[:1], [(0, passages)], torch.ones(1), own, rule, torch.Generator())
    print(found.tolist())
print(plan().__class__, Examples({}, plan()).fingerprint != Examples({}, plan(max_gap=0.5)).fingerprint)
"""


def test_a_rule_of_mining_is_added_in_the_file_of_the_rule(tmp_path: Path) -> None:
    """Three additions to one class, in a copy, make a flag, a path and a part of what names the rows."""
    shutil.copytree(ROOT / "platform", tmp_path / "platform")
    file = tmp_path / "platform" / "stillhouse" / "values" / "mining.py"
    text = file.read_text().rstrip("\n") + "\n" + MASK  # `excluded` is the last of its methods
    anchors = {
        '    index: str = "exact"\n': FIELD,
        '        """Check the ranges."""\n': RANGE,
        "            may miss some.\n": MEANING,
    }
    for anchor, added in anchors.items():
        assert text.count(anchor) == 1, anchor
        text = text.replace(anchor, anchor + added)
    file.write_text(text)

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        env = {**os.environ, "PYTHONPATH": str(tmp_path / "platform"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    shown = run("-m", "stillhouse.cli.main", "fields", "pairs.mining.max_gap")
    assert "Largest difference" in shown.stdout, shown.stderr
    helped = run("-m", "stillhouse.cli.main", "mine", "--help")
    assert "--max-gap X" in helped.stdout
    refused = run("-m", "stillhouse.cli.main", "mine", "--output", "mined.jsonl", "--max-gap", "0")
    assert refused.returncode == 2 and "max_gap > 0" in refused.stderr
    mined = run("-c", MINE)
    assert mined.stdout.splitlines()[:2] == ["[[1, 2, 3]]", "[[1, 2, -1]]"], mined.stderr
    assert mined.stdout.strip().endswith("True")
