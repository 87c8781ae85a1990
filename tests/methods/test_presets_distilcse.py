"""DistilCSE (Gao et al., arXiv:2112.05638): every value of the presets and grids of its tables' methods."""

from typing import Any

import pytest
from preset_arguments import first, grid, stage_arguments
from rows import each_row
from test_contract import setting  # type: ignore[import-not-found]

from stillhouse.methods import load_method

SHARED: dict[str, Any] = {
    "name": "adam",  # section 4.2: Adam in both stages; the code's AdamW has no decay, which is Adam
    "weight_decay": 0.0,
    "warmup": 0.1,  # ours
    "decay": "linear",  # ours
    "clip_norm": 1.0,  # ours
}
STAGE_1: dict[str, Any] = {
    **SHARED,
    "batch_size": 512,  # section 4.2
    "budget": 4096,  # the setting's
    "learning_rate": 3e-4,  # section 4.2: 52 M and 14 M
}
STAGE_2: dict[str, Any] = {
    **SHARED,
    "objective": "SupervisedBottleneck",
    "batch_size": 128,  # section 4.2
    "budget": 1024,  # the setting's
    "learning_rate": 5e-5,  # section 4.2: 110 M and 14 M
    "nce.temperature": 0.05,  # not printed; the code's scale of 20
    "nce.similarity": "cosine",  # eq. 7
    "nce.share_negatives": True,  # eq. 7: the hard negatives of the batch
    "nce.learnable_scale": False,
    "nce.mask_duplicates": True,
    "beta": 0.0,
}
MSE: dict[str, Any] = {
    "mse.projection": None,  # eq. 3: only where the dimensions differ
    "mse.bias": False,  # eq. 3
    "mse.identity_init": True,
    "mse.dimensions": "mean",  # eq. 2: MSE
    "mse.normalize": False,
}
OWN: dict[str, dict[str, Any]] = {
    "ckd": {
        "objective": "ContrastiveDistillation",
        "nce.temperature": 0.05,  # not printed
        "nce.similarity": "cosine",  # eq. 4
        "nce.normalize": True,
        "nce.projection": None,  # eq. 6: only where the dimensions differ
        "nce.identity_init": True,
        "nce.bias": False,  # eq. 6
        "nce.learnable_scale": False,
        "nce.mask_duplicates": True,
        "bank.size": 65536,  # section 4.2, eq. 5
        "bank.precision": "float32",
    },
    "mse": {"objective": "Regression", **MSE, "normalize": True},  # the setting's teacher has any length
    "pkd": {
        "objective": "PatientRegression",
        **MSE,
        "mse.dimensions": "sum",  # ours
        "beta": 0.1,  # ours
        "match": "skip",  # PKD-Skip
        "final": False,  # PKD: the last layer is left to the output loss
        "normalize": True,
    },
    "metakd": {
        "objective": "MetaDistillation",
        "task.temperature": 0.05,
        "task.similarity": "cosine",
        "task.share_negatives": True,
        "task.learnable_scale": False,
        "task.mask_duplicates": True,
        **MSE,
        "mse.normalize": True,  # ours: the head learns by cosines
        "beta": 1.0,  # ours
    },
}
SIZES: dict[str, tuple[float, float]] = {
    "paper": (3e-4, 5e-5),  # section 4.2: 14 M
    "paper_52m": (3e-4, 1e-5),  # section 4.2: 52 M
    "paper_110m": (2e-4, 5e-5),  # section 4.2: 110 M
}
CODE: dict[str, Any] = {
    "warmup": 0.005,  # a tenth of the first of 20 epochs
    "decay": "cosine",
}
REPO: dict[str, dict[str, dict[str, Any]]] = {
    "ckd": {  # ckd_contrastive_run.sh, 12 layers
        "ckd": {
            **STAGE_1,
            **OWN["ckd"],
            **CODE,
            "learning_rate": 2e-4,
            "nce.temperature": 0.367879,  # the scale starts at e¹
            "nce.learnable_scale": True,
            "nce.bias": True,
        },
        "finetune": {**STAGE_2, **CODE, "nce.learnable_scale": True},  # nli_run.sh: a scale of 20
    },
    "mse": {  # kd_distinllation_run.sh, 12 layers
        "mse": {**STAGE_1, **OWN["mse"], **CODE, "learning_rate": 2e-4, "mse.bias": True, "clip_norm": 0.0},
        "finetune": {**STAGE_2, **CODE, "nce.learnable_scale": True, "clip_norm": 0.0},
    },
}


@each_row("name", OWN)
def test_every_preset_is_stated(name: str) -> None:
    assert list(load_method(name).PRESETS) == [*SIZES, *(["repo"] if name in REPO else [])]


@each_row("name", OWN)
@each_row("preset", SIZES)
def test_every_value_of_a_preset_of_a_size(name: str, preset: str) -> None:
    rate, finetune_rate = SIZES[preset]
    assert stage_arguments(name, preset, setting()) == {
        name: {**STAGE_1, **OWN[name], "learning_rate": rate},
        "finetune": {**STAGE_2, "learning_rate": finetune_rate},
    }


@pytest.mark.parametrize("name", REPO)
def test_every_value_of_the_code(name: str) -> None:
    assert stage_arguments(name, "repo", setting()) == REPO[name]


@each_row("name", ["mse", "pkd", "crd", "hpd", "metakd", "ckd"])
def test_one_stage_2_for_every_method_of_the_tables(name: str) -> None:
    stage = stage_arguments(name, "paper", setting())["finetune"]
    same = {key: value for key, value in STAGE_2.items() if key not in ("name", "weight_decay")}
    assert {key: stage[key] for key in same} == same


def test_the_grids() -> None:
    assert grid("ckd") == {
        "learning_rate": (1e-4, 2e-4, 3e-4),  # section 4.2: 2e-4 and 3e-4
        "batch_size": (128, 256, 512),  # section 4.2: 512
        "temperature": (0.02, 0.05, 0.1),  # not printed
        "finetune_learning_rate": (1e-5, 5e-5),  # section 4.2
    }
    assert grid("mse") == {
        "learning_rate": (1e-5, 3e-5, 1e-4, 2e-4, 3e-4),
        "batch_size": (64, 128, 256, 512),
        "finetune_learning_rate": (1e-5, 5e-5),
    }
    assert grid("pkd") == {
        "learning_rate": (3e-5, 1e-4, 2e-4, 3e-4),
        "batch_size": (64, 128, 256, 512),
        "beta": (0.01, 0.1, 1.0),
        "match": ("skip", "last"),
        "finetune_learning_rate": (1e-5, 5e-5),
    }
    assert grid("metakd") == {
        "learning_rate": (3e-5, 1e-4, 2e-4, 3e-4),
        "batch_size": (64, 128, 256, 512),
        "beta": (0.5, 1.0, 2.0),
        "finetune_learning_rate": (1e-5, 5e-5),
    }


def test_the_first_points_are_the_published_ones() -> None:
    published = {"learning_rate": 3e-4, "batch_size": 512, "finetune_learning_rate": 5e-5}
    assert first("ckd") == {**published, "temperature": 0.05}
    assert first("mse") == published
    assert first("pkd") == {**published, "beta": 0.1, "match": "skip"}
    assert first("metakd") == {**published, "beta": 1.0}
    short = {"learning_rate": 3e-4, "batch_size": 512}
    assert first("ckd", "continuous") == {
        **published,
        "temperature": 0.05,
        "keep_projection": False,
        "finetune_batch_size": 128,
        "finetune_temperature": 0.05,
    }
    assert first("mse", "continuous") == short
    assert first("pkd", "continuous") == {**published, "beta": 0.1, "match": "skip"}
    assert first("metakd", "continuous") == {**short, "temperature": 0.05, "beta": 1.0}


def test_the_continuous_sections() -> None:
    rate, batch = (1e-5, 1e-3, {"log": True}), (64, 512, {"step": 64, "log": False})
    assert grid("ckd", "continuous") == {
        "learning_rate": (3e-5, 1e-3, {"log": True}),
        "batch_size": (128, 512, {"step": 128, "log": False}),
        "temperature": (0.01, 0.5, {"log": True}),
        "keep_projection": (False, True),
        "finetune_learning_rate": rate,
        "finetune_batch_size": (32, 256, {"step": 32, "log": False}),
        "finetune_temperature": (0.01, 0.5, {"log": True}),
    }
    assert grid("mse", "continuous") == {"learning_rate": (1e-5, 2e-3, {"log": True}), "batch_size": batch}
    assert grid("pkd", "continuous") == {
        "learning_rate": rate,
        "batch_size": batch,
        "beta": (0.001, 10.0, {"log": True}),
        "match": ("skip", "last"),
        "finetune_learning_rate": rate,
    }
    assert grid("metakd", "continuous") == {
        "learning_rate": rate,
        "batch_size": batch,
        "temperature": (0.01, 0.2, {"log": True}),
        "beta": (0.1, 10.0, {"log": True}),
    }
