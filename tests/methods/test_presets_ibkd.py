"""IBKD (Zhang et al., ACL Findings 2023, arXiv:2311.05472): every value of its presets and of its grids."""

from typing import Any

from preset_arguments import first, grid, stage_arguments
from rows import each_row
from test_contract import setting  # type: ignore[import-not-found]

from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.methods import load_method, with_defaults

ADAM: dict[str, Any] = {
    "name": "adam",  # section 4.3, "We used Adam"; the code's AdamW has no decay, which is Adam
    "weight_decay": 0.0,
    "decay": "linear",  # not printed; the code's trainer
    "clip_norm": 1.0,  # not printed; the code's trainer
}
HSIC: dict[str, Any] = {
    "hsic.kernel": "rbf",  # section 3.2, eq. 7
    "hsic.forms": "usual",
    "hsic.gamma": 0.5,  # section 4.3
    "hsic.bandwidth": "fixed",
    "hsic.normalize": True,  # ours
    "hsic.detach_inputs": False,
    "hsic.estimator": "biased_l2",  # eq. 6: 1/l²
    "input_layer": "embedding",  # ours
    "output": "vector",  # eq. 8 and 9
}
DISTIL: dict[str, Any] = {
    **ADAM,
    **HSIC,
    "objective": "InformationBottleneck",  # eq. 8
    "batch_size": 256,  # Table 1, STS
    "budget": 4096,  # the setting's
    "learning_rate": 1e-4,  # Table 1, STS
    "warmup": 0.1,  # ours
    "nce.temperature": 0.1,  # Table 1, STS
    "nce.similarity": "bilinear",  # eq. 5: s W t
    "nce.normalize": True,  # ours
    "nce.projection": True,  # eq. 5: W
    "nce.identity_init": True,
    "nce.bias": False,  # eq. 5
    "nce.learnable_scale": False,
    "nce.mask_duplicates": True,
    "beta": 1.0,  # section 4.3: β₁
}
FINETUNE: dict[str, Any] = {
    **ADAM,
    **HSIC,
    "objective": "SupervisedBottleneck",  # eq. 9
    "batch_size": 256,  # Table 1, STS_ft
    "budget": 1024,  # the setting's
    "learning_rate": 3e-5,  # Table 1, STS_ft
    "warmup": 0.1,  # ours
    "nce.temperature": 0.05,  # Table 1, STS_ft
    "nce.similarity": "cosine",  # eq. 10 of unit vectors
    "nce.share_negatives": False,  # eq. 10: the anchor's own K
    "nce.learnable_scale": False,
    "nce.mask_duplicates": True,
    "beta": 0.5,  # section 4.3: β₂
    "texts": "queries",  # eq. 9: one x per instance
}
CODE: dict[str, Any] = {
    "warmup": 0.0,  # the trainer's default
    "hsic.forms": "code",  # imq (γ + d²)^-½, linear over unit rows
    "hsic.normalize": False,  # raw vectors
    "hsic.estimator": "biased",  # 1/(n−1)²
    "output": "state",  # the pooled state, before any layer
}
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {"distil": DISTIL, "finetune": FINETUNE},
    "dense_retrieval": {  # Table 1, DR and DR_ft
        "distil": {**DISTIL, "batch_size": 128, "learning_rate": 1e-4, "nce.temperature": 0.1},
        "finetune": {**FINETUNE, "batch_size": 128, "learning_rate": 1e-5, "nce.temperature": 0.05},
    },
    "repo": {
        "distil": {  # run_unsup.sh
            **DISTIL,
            **CODE,
            "nce.temperature": 1.0,
            "nce.similarity": "cosine",
            "nce.bias": True,
            "hsic.gamma": 1.0,
            "beta": 0.2,  # its λ
        },
        "finetune": {  # run_sup.sh
            **FINETUNE,
            **CODE,
            "batch_size": 128,
            "learning_rate": 1e-6,
            "nce.share_negatives": True,  # all negatives of the batch are logits
            "hsic.gamma": 0.1,  # fixed in the code
            "beta": 1.0,  # its λ
            "input_layer": "penultimate",  # hidden[-2]
            "texts": "all",  # all 3B sentences
            "student.projection": 128,  # Linear → 128, always
        },
    },
}


def test_every_preset_is_stated() -> None:
    assert list(load_method("ibkd").PRESETS) == list(PRESETS)


@each_row("preset", PRESETS)
def test_every_value_of_a_preset(preset: str) -> None:
    assert stage_arguments("ibkd", preset, setting()) == PRESETS[preset]


def test_the_grid_is_table_5_for_both_stages() -> None:
    assert grid("ibkd") == {
        "distil_learning_rate": (1e-5, 3e-5, 1e-4),
        "distil_batch_size": (64, 128, 256),
        "distil_epochs": (3, 5, 10),
        "distil_temperature": (0.01, 0.05, 0.1, 0.2, 0.5),
        "gamma": (0.01, 0.1, 0.5, 1.0),
        "beta1": (0.1, 0.5, 1.0, 2.0),
        "beta2": (0.1, 0.5, 1.0, 2.0),
        "finetune_learning_rate": (1e-5, 3e-5, 1e-4),
        "finetune_batch_size": (64, 128, 256),
        "finetune_epochs": (3, 5, 10),
        "finetune_temperature": (0.01, 0.05, 0.1, 0.2, 0.5),
    }
    assert first("ibkd") == {
        "distil_learning_rate": 1e-4,  # Table 1, STS
        "distil_batch_size": 256,
        "distil_epochs": 10,
        "distil_temperature": 0.1,
        "gamma": 0.5,  # section 4.3
        "beta1": 1.0,
        "beta2": 0.5,
        "finetune_learning_rate": 3e-5,  # Table 1, STS_ft
        "finetune_batch_size": 256,
        "finetune_epochs": 3,
        "finetune_temperature": 0.05,
    }
    assert first("ibkd", "continuous") == {
        "distil_learning_rate": 1e-4,
        "distil_batch_size": 256,
        "distil_epochs": 10,
        "distil_temperature": 0.1,
        "keep_projection": False,
        "finetune_learning_rate": 3e-5,
        "finetune_batch_size": 256,
        "finetune_temperature": 0.05,
    }


def test_the_continuous_section() -> None:
    assert grid("ibkd", "continuous") == {
        "distil_learning_rate": (1e-5, 1e-3, {"log": True}),
        "distil_batch_size": (64, 256, {"step": 64, "log": False}),
        "distil_epochs": (3, 10, {"step": 1, "log": False}),
        "distil_temperature": (0.01, 0.5, {"log": True}),
        "keep_projection": (False, True),
        "finetune_learning_rate": (1e-5, 1e-3, {"log": True}),
        "finetune_batch_size": (32, 256, {"step": 32, "log": False}),
        "finetune_temperature": (0.01, 0.5, {"log": True}),
    }


def test_figure_3_table_4_and_the_two_objectives() -> None:
    assert grid("ibkd_betas") == {"beta1": (0.0, 0.1, 0.5, 1.0, 2.0), "beta2": (0.0, 0.1, 0.5, 1.0, 2.0)}
    assert first("ibkd_betas") == {"beta1": 1.0, "beta2": 0.5}
    assert grid("ibkd_kernels") == {"kernel": ("rbf", "imq", "linear")}
    assert first("ibkd_kernels") == {"kernel": "rbf"}
    assert grid("ibkd_pareto") == {
        "layers": ((0, 2, 4), (1, 3, 5), (0, 5), (1, 4), (5,)),
        "projection": (0, 128),
        "distil_learning_rate": (1e-4, 3e-4, 1e-3),
        "distil_temperature": (0.02, 0.05, 0.1),
    }
    assert first("ibkd_pareto") is None


@each_row(
    ("pairs", "mined", "given"),
    [
        (Pairs(), 8, 1),  # section 4.3: 8 hard negatives for each query
        (Pairs("nli.jsonl"), 8, 1),  # negatives that come with the pairs are counted by their file
        (Pairs(negatives=1), 1, 1),
        (Pairs(negatives=4), 4, 4),
        (Pairs(mined=2), 2, 1),
    ],
)
def test_eight_negatives_are_mined_unless_the_user_says_otherwise(
    pairs: Pairs, mined: int, given: int
) -> None:
    experiment = with_defaults(load_method("ibkd"), Experiment(data=(Sentences(), pairs)))
    found: Pairs = experiment.get(Pairs)
    assert (found.number_mined, found.number_given, found.path) == (mined, given, pairs.path)


def test_a_kind_that_another_brings_gets_the_default_too() -> None:
    brought = with_defaults(load_method("ibkd"), Experiment())
    assert brought.get(Pairs).number_mined == 8
    assert with_defaults(load_method("mse"), Experiment()).get(Pairs).number_mined == 1
    assert with_defaults(load_method("ibkd"), Experiment(data=(Sentences("a.txt"),))).get(Pairs) is None
