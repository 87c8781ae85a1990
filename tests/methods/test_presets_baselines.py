"""HPD, CRD and SimCSE, baselines of IBKD's tables: every value of their presets and grids."""

from typing import Any

from preset_arguments import first, grid, stage_arguments
from rows import each_row
from test_contract import setting  # type: ignore[import-not-found]

from stillhouse.methods import load_method

CONTRAST: dict[str, Any] = {
    "objective": "SupervisedBottleneck",
    "nce.temperature": 0.05,  # SimCSE section 3; DistilCSE's code: a scale of 20
    "nce.similarity": "cosine",
    "nce.share_negatives": True,  # SimCSE eq. 5, DistilCSE eq. 7
    "nce.learnable_scale": False,
    "nce.mask_duplicates": True,
    "beta": 0.0,
}
SCHEDULE: dict[str, Any] = {
    "name": "adam",
    "weight_decay": 0.0,
    "warmup": 0.1,  # ours
    "decay": "linear",
    "clip_norm": 1.0,
}
STAGE_2: dict[str, Any] = {
    **SCHEDULE,
    **CONTRAST,
    "batch_size": 128,  # DistilCSE section 4.2
    "budget": 1024,  # the setting's
    "learning_rate": 5e-5,  # DistilCSE section 4.2
}
HPD_STUDENT: dict[str, Any] = {
    "name": "adamw",  # the code's trainer
    "weight_decay": 0.01,  # the code's trainer
    "student.projection": 128,  # the text and run.sh
    "student.projection_activation": "tanh",
    "student.normalize": False,
}
HPD: dict[str, Any] = {
    **SCHEDULE,
    **HPD_STUDENT,
    "objective": "ProjectedRegression",
    "batch_size": 256,  # run.sh
    "budget": 4096,
    "learning_rate": 1e-4,  # run.sh
    "centred": True,  # the text: PCA
}
CRD: dict[str, Any] = {
    **SCHEDULE,  # Adam: IBKD section 4.3
    "objective": "RepresentationContrast",
    "batch_size": 256,  # IBKD Table 1, STS
    "budget": 4096,
    "learning_rate": 1e-4,  # IBKD Table 1, STS
    "crd.items": 1000,  # the setting's sentences
    "crd.dim": 128,  # the text
    "crd.temperature": 0.07,  # the text
    "crd.bias": True,
    "crd.estimated": False,  # the equation has no constant
    "crd.mask_duplicates": True,
    "bank.size": 16384,  # the text: N
    "bank.precision": "float32",
}
SIMCSE: dict[str, Any] = {
    **SCHEDULE,
    **CONTRAST,
    "batch_size": 512,  # appendix A
    "budget": 1024,
    "learning_rate": 5e-5,  # appendix A
}
PRESETS: dict[str, dict[str, dict[str, dict[str, Any]]]] = {
    "hpd": {
        "paper": {"hpd": HPD, "finetune": {**STAGE_2, **HPD_STUDENT}},
        # The code projects the vectors as they are, by the components of a PCA.
        "repo": {"hpd": {**HPD, "centred": False}, "finetune": {**STAGE_2, **HPD_STUDENT}},
    },
    "crd": {
        "paper": {"crd": CRD, "finetune": STAGE_2},
        # The code's Z of the first batch.
        "repo": {"crd": {**CRD, "crd.estimated": True}, "finetune": STAGE_2},
    },
    "simcse": {"paper": {"simcse": SIMCSE}, "repo": {"simcse": {**SIMCSE, "warmup": 0.0}}},
}


@each_row("name", PRESETS)
def test_every_preset_is_stated(name: str) -> None:
    assert list(load_method(name).PRESETS) == list(PRESETS[name])


@each_row(("name", "preset"), [(name, preset) for name in PRESETS for preset in PRESETS[name]])
def test_every_value_of_a_preset(name: str, preset: str) -> None:
    assert stage_arguments(name, preset, setting()) == PRESETS[name][preset]


def test_the_grids() -> None:
    assert grid("hpd") == {
        "learning_rate": (3e-5, 1e-4, 3e-4),  # run.sh: 1e-4
        "batch_size": (64, 128, 256),  # run.sh: 256
        "dim": (64, 128, 256),  # run.sh: 128
    }
    assert grid("crd") == {
        "learning_rate": (1e-5, 3e-5, 1e-4),  # IBKD Table 5
        "batch_size": (64, 128, 256),  # IBKD Table 5
        "temperature": (0.05, 0.07, 0.1),  # the text: 0.07
    }
    assert grid("simcse") == {"learning_rate": (1e-5, 3e-5, 5e-5), "batch_size": (64, 128, 256, 512)}
    assert first("hpd") == {"learning_rate": 1e-4, "batch_size": 256, "dim": 128}
    assert first("crd") == {"learning_rate": 1e-4, "batch_size": 256, "temperature": 0.07}
    assert first("simcse") == {"learning_rate": 5e-5, "batch_size": 512}


def test_the_continuous_sections() -> None:
    rate, batch = (1e-5, 1e-3, {"log": True}), (64, 256, {"step": 64, "log": False})
    assert grid("hpd", "continuous") == {
        "learning_rate": rate,
        "batch_size": batch,
        "dim": (32, 256, {"step": 32, "log": False}),
        "finetune_learning_rate": rate,
    }
    assert grid("crd", "continuous") == {
        "learning_rate": rate,
        "batch_size": batch,
        "temperature": (0.03, 0.5, {"log": True}),
        "finetune_learning_rate": rate,
    }
    assert grid("simcse", "continuous") == {
        "learning_rate": rate,
        "batch_size": (64, 512, {"step": 64, "log": False}),
        "temperature": (0.01, 0.2, {"log": True}),
    }
    point = {"learning_rate": 1e-4, "batch_size": 256, "finetune_learning_rate": 5e-5}
    assert first("hpd", "continuous") == {**point, "dim": 128}
    assert first("crd", "continuous") == {**point, "temperature": 0.07}
    assert first("simcse", "continuous") == {"learning_rate": 5e-5, "batch_size": 512, "temperature": 0.05}
