"""Which plans train a student that lives in its teacher's space, by method and dimension."""

from dataclasses import replace
from typing import Any

import pytest
from rows import each_row
from small_world import World

from stillhouse.core.errors import BadInput
from stillhouse.methods import load_method
from stillhouse.training.teacher_space import check_plan
from stillhouse.values.stage import DevSuite, Stage

DEV = DevSuite((), "none")


def planned(
    world: World, method: str, *, wide: bool = False, fine_tuned: bool = False, **values: Any
) -> Stage:
    teacher = world.wide_teacher if wide else world.teacher
    finetune_budget = 4096 if fine_tuned else 0
    setting = replace(world.setting(teacher), dev=DEV, distil_budget=4096, finetune_budget=finetune_budget)
    module = load_method(method)
    stage: Stage = module.plan(module.HyperParameters(**values), setting)
    return stage


@each_row(
    ("method", "options"),
    [
        ("mse", {}),
        ("mse", {"fine_tuned": True}),
        ("ckd", {}),
        ("ckd", {"wide": True, "keep_projection": True}),
        ("ibkd", {"keep_projection": True}),
        ("ibkd", {"wide": True, "keep_projection": True}),
        ("pkd", {}),
        ("leaf", {}),
        ("leaf", {"wide": True}),
        ("mse", {"wide": True, "keep_projection": True}),
    ],
)
def test_these_students_live_in_their_teachers_space(
    built_world: World, method: str, options: dict[str, Any]
) -> None:
    check_plan(planned(built_world, method, **options), 24 if options.get("wide") else 16)


@each_row(
    ("method", "options", "reason"),
    [
        ("mse", {"wide": True}, "16 dimensions and its teacher's 24"),
        ("ckd", {"wide": True}, "16 dimensions and its teacher's 24"),
        ("ibkd", {}, "a linear layer, which is dropped"),
        ("hpd", {"dim": 16}, "principal components"),
        ("hpd", {"dim": 8}, "8 dimensions and its teacher's 16"),
        ("crd", {}, "a head on either side"),
        ("simcse", {"fine_tuned": True}, "it follows no teacher"),
        ("metakd", {"fine_tuned": True}, "a head over its teacher's vectors"),
    ],
)
def test_these_do_not(built_world: World, method: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        check_plan(planned(built_world, method, **options), 24 if options.get("wide") else 16)


def test_a_layer_that_is_added_later_leads_out_of_the_space(built_world: World) -> None:
    stage = planned(built_world, "mse", fine_tuned=True)
    assert stage.start_from is not None and stage.student == stage.start_from.student
    check_plan(stage, 16)
    added = replace(stage, student=stage.student.replace(projection=16))
    with pytest.raises(BadInput, match=r"stage finetune is not: a layer was added to it after"):
        check_plan(added, 16)


def test_stages_that_are_not_measured_may_be_anywhere(built_world: World) -> None:
    check_plan(replace(planned(built_world, "ibkd"), dev=None), 16)
