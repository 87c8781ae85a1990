"""A sweep with a remote: a new head with an empty disk goes on from the finished trials."""

import dataclasses
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from small_experiment import sentences

from stillhouse import Budget, Experiment, Sentences, TeacherChoice, TransformerChoice
from stillhouse.cluster.resources import Need
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.search.options import SweepOptions
from stillhouse.search.space import Categorical, Space
from stillhouse.sweeps.sweep import sweep

pytestmark = [pytest.mark.ray, pytest.mark.long]


def states(root: Path) -> Counter[str]:
    with closing(sqlite3.connect(root / "sweeps" / "s" / "study.db")) as study:
        return Counter(dict(study.execute("SELECT number, state FROM trials")).values())


def runs(root: Path) -> int:
    """Runs of trials in the local MLflow database."""
    with closing(sqlite3.connect(root / "mlflow.db")) as database:
        found = database.execute("SELECT name FROM runs WHERE name LIKE 'trial %'").fetchall()
    return len(found)


def test_a_new_head_goes_on_from_the_remote(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "words.txt").write_text("\n".join(sentences(120)))
    (tmp_path / "mounted").mkdir()
    experiment = Experiment(
        teacher=TeacherChoice(str(tiny_model)),
        student=TransformerChoice(layers=(0,)),
        data=(Sentences(str(tmp_path / "words.txt"), count=0, held_out=20),),
        budget=Budget(distil=64, evaluations=1),
        max_length=16,
        compute="float32",
    )
    options = SweepOptions(
        "s",
        "mse",
        Space("mse", {"batch_size": Categorical((4, 8, 16))}, first={"batch_size": 8}),
        experiment,
        tmp_path / "one",
        trials=1,
        scheduler="none",
        concurrency=1,
        need=Need(1, 1, None),
        embedding=Embedding(local=True),
        remote=str(tmp_path / "mounted"),
    )
    first = sweep(options)
    assert states(options.root) == {"COMPLETE": 1}
    capsys.readouterr()
    two = tmp_path / "two"
    second = sweep(dataclasses.replace(options, root=two, trials=2))
    printed = capsys.readouterr().err
    assert "going on from the remote (finished trials: 1)" in printed
    assert "1 known, 1 to run" in printed and "reading " not in printed
    assert states(two) == {"COMPLETE": 2} and runs(two) == 2
    # What differs is how it compares with the best one, which may be the second now.
    known = {**second["trials"][0], "against_best": first["trials"][0]["against_best"]}
    assert known == first["trials"][0], "known, not run again"
    stages = {path.parent.name for path in (two / "stages").glob("*/manifest.json")}
    assert stages >= {path.parent.name for path in (tmp_path / "one" / "stages").glob("*/manifest.json")}
