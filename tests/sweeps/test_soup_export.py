"""The mean of several trained students, exported as one: a soup."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from stillhouse.api import export as export_from_python
from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.search.trial import Context, follow
from stillhouse.sweeps.stage_export import export_stage
from stillhouse.training.averaged import averaged
from stillhouse.training.models import encoder_in, open_model

TEXTS = ["the cat sat on the mat", "river", "a sun and a moon " * 20, "red water"]


def trained(context: Context, seed: int, method: str = "leaf", **values: float) -> Path:
    """Train the student of a seed, whose layers are the teacher's own; the folder of its stage."""
    student = context.setting.student.replace(seed=seed)  # as an experiment of this seed has it
    setting = dataclasses.replace(context.setting, seed=seed, student=student, finetune_budget=0)
    one = dataclasses.replace(context, method=method, setting=setting)
    given = {"batch_size": 8, "learning_rate": 1e-3, **values}
    follow(given, one, lambda report: None)
    return Workspace(Path(context.root)).path(one.plan(given))


@pytest.fixture(scope="module")
def seeds(shared_context: Context) -> list[Path]:
    return [trained(shared_context, seed) for seed in (1, 2, 3)]


def test_it_is_the_mean_of_the_weights(seeds: list[Path], tmp_path: Path) -> None:
    soup = averaged(seeds, TEXTS)
    states = [load_file(folder / "student.safetensors") for folder in seeds]
    student: Any = soup.encoder.student
    mean, moved = student.state_dict(), 0
    for name, value in states[0].items():
        expected = sum(state[name].double() for state in states) / 3
        torch.testing.assert_close(mean[name].double(), expected, rtol=0, atol=1e-6)
        moved += int(not torch.equal(value, states[1][name]))
    assert moved > 5 and 0.9 < soup.among_students < soup.to_students < 1
    assert export_stage(seeds[0], tmp_path / "mean", soup=seeds[1:]).parity > 0.9999
    exported = open_model(str(tmp_path / "mean"), Workspace(tmp_path / "runs")).encode(TEXTS)
    np.testing.assert_allclose(exported, soup.encoder.encode(TEXTS), atol=1e-5)
    assert np.abs(exported - encoder_in(seeds[0]).encode(TEXTS)).max() > 1e-4


def test_from_the_command_line_and_from_python(
    seeds: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, others = str(seeds[0].parent.parent), ",".join(folder.name for folder in seeds[1:])
    command = ["export", seeds[0].name, str(tmp_path / "out"), "--root", root, "--soup", others]
    assert main([*command, "--json", str(tmp_path / "said.json")]) == 0
    printed = capsys.readouterr().err
    assert "the mean of 3 students: its vectors have a mean cosine of 0.9" in printed
    assert json.loads((tmp_path / "said.json").read_text())["soup"] == [str(folder) for folder in seeds[1:]]
    card = (tmp_path / "out" / "README.md").read_text()
    assert "the mean of the weights of 3 trainings" in card
    for folder in seeds:
        assert folder.name in card
    assert "dev split" not in card, "figures of one of them are none of the mean"
    assert export_from_python(seeds[0], tmp_path / "again", soup=seeds[1:], root=root).cosine > 0.9999
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_an_asymmetric_soup_searches_its_teacher(
    seeds: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "stillhouse.students.export.asymmetric.why_not", lambda *_: "no graph, which takes long"
    )
    assert export_stage(seeds[0], tmp_path / "both", form="asymmetric", soup=seeds[1:]).parity > 0.9999
    both = open_model(str(tmp_path / "both"), Workspace(tmp_path / "runs"))
    expected = averaged(seeds, TEXTS).encoder.encode(TEXTS)
    np.testing.assert_allclose(both.encode_query(TEXTS), expected, atol=1e-5)


def test_students_that_cannot_be_averaged_are_refused(
    seeds: list[Path], shared_context: Context, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadInput, match=r"two or more different stages.*leaf"):
        averaged([seeds[0], seeds[0]], TEXTS)
    ibkd = {"distil_batch_size": 8, "finetune_batch_size": 8, "projection": 8}
    follow(ibkd, shared_context, lambda report: None)
    other = Workspace(Path(shared_context.root)).path(shared_context.plan(ibkd))
    with pytest.raises(BadInput, match=r"finetune-\w+ has another student than leaf"):
        averaged([seeds[0], other], TEXTS)
    target = tmp_path / "none"
    with pytest.raises(BadInput):
        export_stage(seeds[0], target, soup=[other])
    assert not target.exists()
    root = ["--root", str(seeds[0].parent.parent)]
    assert main(["export", seeds[0].name, str(target), "--soup", "nothing", *root]) == 2
    assert "'nothing'" in capsys.readouterr().err
    scores = ["--format", "list", "--soup", seeds[1].name]
    assert main(["export", seeds[0].name, *scores, *root]) == 2
    assert "a soup is exported as a model" in capsys.readouterr().err
    assert not target.exists()


def shuffle_units(encoder: Any) -> None:
    """Put the hidden units of every layer in another order, which changes no vector."""
    for layer in encoder.student.backbone.encoder.layer:
        order = torch.randperm(layer.intermediate.dense.out_features)
        layer.intermediate.dense.weight.copy_(layer.intermediate.dense.weight[order])
        layer.intermediate.dense.bias.copy_(layer.intermediate.dense.bias[order])
        layer.output.dense.weight.copy_(layer.output.dense.weight[:, order])


def turn_space(encoder: Any) -> None:
    """Turn every second dimension of the vectors round."""
    last = encoder.student.backbone.encoder.layer[-1].output.LayerNorm
    for part in (last.weight, last.bias):
        part[::2] *= -1


@pytest.mark.parametrize("disguise", [shuffle_units, turn_space])
def test_students_too_far_apart_are_refused(
    seeds: list[Path], disguise: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as those whose layers were drawn anew: their mean is none of them."""
    among = averaged(seeds[:2], TEXTS).among_students

    def disguised(folder: Path) -> Any:
        encoder: Any = encoder_in(folder)
        if folder != seeds[0]:
            with torch.no_grad():
                disguise(encoder)
        return encoder

    monkeypatch.setattr("stillhouse.training.averaged.encoder_in", disguised)
    said = f"{among:.3f}" if disguise is shuffle_units else r"-?0\.[0-4]\d+"
    with pytest.raises(
        BadInput, match=f"so close that the mean is one of them.*theirs, which have {said} with"
    ):
        averaged(seeds[:2], TEXTS)
