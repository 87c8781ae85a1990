"""What a searched hyper-parameter changes, found from the plans; and which of them do nothing."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from rows import each_row

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.reports.gradient_shares import NEGLIGIBLE, Inert, inert, over_trials, range_line, shares_line
from stillhouse.search.effects import effects, without_idle
from stillhouse.search.space import Categorical, Float, Int, Space
from stillhouse.search.trial import Context, follow
from stillhouse.training.term_gradients import shares_of

FIXED = {"distil_batch_size": 16, "finetune_batch_size": 16}
HSIC = frozenset({("distil", "hsic"), ("finetune", "hsic")})


@each_row(
    ("name", "domain", "effect"),
    [
        ("beta1", Float(0.1, 2.0), {("distil", "hsic")}),
        ("beta2", Categorical((0.0, 0.5)), {("finetune", "hsic")}),
        ("gamma", Float(0.01, 1.0), HSIC),
        ("finetune_gamma", Float(0.01, 1.0), {("finetune", "hsic")}),
        ("kernel", Categorical(("rbf", "imq")), HSIC),
        ("finetune_input_layer", Categorical(("embedding", "penultimate")), {("finetune", "hsic")}),
        ("distil_temperature", Float(0.01, 0.5), {("distil", "nce")}),
        ("finetune_temperature", Float(0.01, 0.5), {("finetune", "nce")}),
        ("distil_learning_rate", Float(1e-5, 1e-3), None),
        ("warmup", Float(0.0, 0.2), None),
        ("keep_projection", Categorical((False, True)), None),
        ("projection", Categorical((0, 4)), None),
    ],
)
def test_effects_of_ibkd(context: Context, name: str, domain: Any, effect: Any) -> None:
    space = Space("ibkd", {name: domain}, fixed=FIXED)
    assert effects(context, space) == {name: effect if effect is None else frozenset(effect)}


def test_effects_without_a_stage_or_with_a_method_that_has_one_term(context: Context) -> None:
    alone = dataclasses.replace(context, setting=dataclasses.replace(context.setting, finetune_budget=0))
    space = Space("ibkd", {"beta2": Float(0.1, 2.0), "gamma": Float(0.1, 1.0)}, fixed=FIXED)
    assert effects(alone, space) == {"beta2": frozenset(), "gamma": frozenset({("distil", "hsic")})}
    mse = dataclasses.replace(context, method="mse")
    searched = Space("mse", {"learning_rate": Float(1e-5, 1e-3), "batch_size": Int(8, 16)})
    assert effects(mse, searched) == {"learning_rate": None, "batch_size": None}


def test_what_acts_only_with_another_value_is_not_without_effect(context: Context) -> None:
    """A batch larger than the budget is cut to it: it does nothing at the space's ends, but in a trial."""
    budget = context.setting.finetune_budget
    space = Space("ibkd", {"finetune_batch_size": Int(budget, 2 * budget)}, fixed={"distil_batch_size": 16})
    assert effects(context, space) == {"finetune_batch_size": frozenset()}
    tried = [{"distil_batch_size": 16, "finetune_batch_size": 16}]
    assert effects(context, space, tried) == {"finetune_batch_size": None}


def test_what_changes_no_plan_is_not_searched(context: Context, capsys: pytest.CaptureFixture[str]) -> None:
    alone = dataclasses.replace(context, setting=dataclasses.replace(context.setting, finetune_budget=0))
    domains = {
        "beta1": Float(0.1, 2.0),
        "beta2": Float(0.1, 2.0),
        "finetune_learning_rate": Float(1e-5, 1e-3),
    }
    first = {"beta1": 1.0, "beta2": 0.5, "finetune_learning_rate": 1e-4}
    space = Space("ibkd", domains, fixed=FIXED, first=first)
    assert without_idle(context, space) is space and not capsys.readouterr().err
    left = without_idle(alone, space)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(": beta2, finetune_learning_rate") and list(left.domains) == ["beta1"]
    assert left.first == {"beta1": 1.0}
    assert alone.plan({**left.fixed, **left.first}).fingerprint == alone.plan({**FIXED, **first}).fingerprint
    with pytest.raises(BadInput, match="searched hyper-parameter must change"):
        without_idle(alone, space.without("beta1"))


def test_shares_of_a_trial_are_read_from_its_stages(context: Context) -> None:
    workspace = Workspace(Path(context.root))
    plan = context.plan({**FIXED, "beta1": 0.5, "beta2": 0.0})
    assert shares_of(plan, workspace) == {}
    follow({**FIXED, "beta1": 0.5, "beta2": 0.0}, context, lambda report: None)
    shares = shares_of(plan, workspace)
    assert list(shares) == ["distil"] and list(shares["distil"]) == ["nce", "hsic"], "β₂ = 0 leaves one term"
    assert sum(shares["distil"].values()) == pytest.approx(1.0)
    assert 0 < shares["distil"]["hsic"] < 0.5


def trial(distil: float, finetune: float | None = None) -> dict[str, dict[str, float]]:
    shares = {"distil": {"nce": 1 - distil, "hsic": distil}}
    return shares if finetune is None else {**shares, "finetune": {"nce": 1 - finetune, "hsic": finetune}}


EFFECTS = {
    "rate": None,
    "temperature": frozenset({("distil", "nce")}),
    "beta1": frozenset({("distil", "hsic")}),
    "gamma": HSIC,
}
PRESETS = {"rate": 1e-4, "temperature": 0.1, "beta1": 1.0, "gamma": 0.5}


@each_row(
    ("trials", "names"),
    [
        ([trial(0.001, 0.002), trial(0.0003)], ["beta1", "gamma"]),
        ([trial(0.001), trial(0.0003)], ["beta1"]),
        ([trial(0.001, 0.002), trial(0.5, 0.002)], []),
        ([trial(0.001, 0.002), trial(0.002, 2 * NEGLIGIBLE)], ["beta1"]),
        ([trial(0.001, 0.002), {}], ["beta1", "gamma"]),
        ([trial(0.999, 0.002)], ["temperature"]),
        ([{}], []),
    ],
)
def test_what_decides_nothing_is_named(trials: Any, names: list[str]) -> None:
    assert [each.name for each in inert(EFFECTS, trials, PRESETS)] == names


def test_the_user_is_told_which_term_how_much_and_what_to_do() -> None:
    found = {each.name: each for each in inert(EFFECTS, [trial(0.0011, 0.002), trial(0.0003)], PRESETS)}
    assert found["beta1"] == Inert("beta1", ("distil: hsic",), 0.0011, 2, 1.0)
    assert found["beta1"].sentence == (
        "beta1 was searched but acts only through distil: hsic, at most 0.11 % of the gradient in all 2 "
        "trials: leave it out of the search (--set beta1=1)."
    )
    assert "distil: hsic and finetune: hsic, at most 0.20 %" in found["gamma"].sentence


def test_lines_of_shares() -> None:
    assert shares_line(trial(0.0011, 0.25)) == (
        "gradient of the first steps: distil nce 99.9 %, hsic 0.11 %; finetune nce 75.0 %, hsic 25.0 %"
    )
    assert shares_line({}) == "" and range_line([]) == ""
    summary = over_trials([trial(0.25), trial(0.5, 0.00001)])
    assert [(each.stage, each.term, each.trials) for each in summary] == [
        ("distil", "nce", 2),
        ("distil", "hsic", 2),
        ("finetune", "nce", 1),
        ("finetune", "hsic", 1),
    ]
    assert range_line(summary) == (
        "gradient of the first steps, over the trials: distil nce 50.0 % to 75.0 %, hsic 25.0 % to 50.0 %; "
        "finetune nce 100.0 %, hsic < 0.01 %"
    )
