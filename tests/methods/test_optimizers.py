"""The optimiser, weight decay, schedule and clipping of every stage of every preset of every method."""

from typing import Any

from rows import each_row
from test_contract import METHODS, setting  # type: ignore[import-not-found]

from stillhouse.methods import load_method

Held = tuple[str, float, float, str, float]
"""Name, weight decay, warm-up, decay of the learning rate, clipping."""

ADAM: Held = ("adam", 0.0, 0.1, "linear", 1.0)
PLAIN: Held = ("adam", 0.0, 0.0, "linear", 1.0)
FLAT: Held = ("adam", 0.0, 0.0, "constant", 1.0)
ADAMW: Held = ("adamw", 0.01, 0.1, "linear", 1.0)
SIZES = ("paper", "paper_52m", "paper_110m")
COSINE: Held = ("adam", 0.0, 0.005, "cosine", 1.0)

HELD: dict[tuple[str, str], dict[str, Held]] = {
    # IBKD section 4.3, "We used Adam"; its code's AdamW has no decay.
    **{("ibkd", preset): {"distil": ADAM, "finetune": ADAM} for preset in ("paper", "dense_retrieval")},
    ("ibkd", "repo"): {"distil": PLAIN, "finetune": PLAIN},
    # DistilCSE section 4.2, Adam in both stages; its code's AdamW has no decay.
    **{(name, size): {name: ADAM, "finetune": ADAM} for name in ("ckd", "mse", "pkd") for size in SIZES},
    **{("metakd", size): {"metakd": ADAM, "finetune": ADAM} for size in SIZES},
    ("ckd", "repo"): {"ckd": COSINE, "finetune": COSINE},
    # DistilCSE's code clips the gradient of CKD, not that of the regression.
    ("mse", "repo"): {"mse": (*COSINE[:4], 0.0), "finetune": (*COSINE[:4], 0.0)},
    # IBKD section 4.3, in whose tables CRD is a baseline.
    **{("crd", preset): {"crd": ADAM, "finetune": ADAM} for preset in ("paper", "repo")},
    # HPD's code: the defaults of the trainer of sentence-transformers.
    **{("hpd", preset): {"hpd": ADAMW, "finetune": ADAMW} for preset in ("paper", "repo")},
    # LEAF: AdamW, to the best of our knowledge.
    ("leaf", "paper"): {"leaf": ADAMW},
    # SimCSE's code: the defaults of the trainer of transformers, whose AdamW has no decay.
    ("simcse", "paper"): {"simcse": ADAM},
    ("simcse", "repo"): {"simcse": PLAIN},
    # Multi-stage section 4.1: AdamW; the decay is the code's.
    **{
        ("crosslingual", preset): dict.fromkeys(("assistant", "align", "student", "contrast"), ADAMW)
        for preset in ("paper", "repo")
    },
    # SRA section 4.3: Adam; its teacher is fine-tuned as BERT is.
    ("sra", "paper"): {"sra": FLAT, "finetune": FLAT},
    ("sra_kd", "paper"): {"teacher": ADAMW, "sra": FLAT, "finetune": FLAT},
    ("bilstm_kd", "paper"): {"teacher": ADAMW, "kd": FLAT},
    # Reranker distillation: Adam, as far as known; the second preset is ours.
    ("rerank_kd", "paper"): {"teacher": FLAT, "rerank_kd": FLAT},
    ("rerank_kd", "contrastive_kl"): {"teacher": ADAM, "rerank_kd": ADAM},
    # Retrieval KD prints no optimiser.
    ("retrieval_kd", "paper"): {"teacher": FLAT, "retrieval_kd": FLAT},
}


def presets_of(name: str) -> dict[str, Any]:
    return load_method(name).PRESETS


def test_every_preset_of_every_method_is_stated_or_equals_the_paper() -> None:
    left = {(name, preset) for name in METHODS for preset in presets_of(name)} - set(HELD)
    assert all(presets_of(name)[preset] == presets_of(name)["paper"] for name, preset in left)


@each_row(("name", "preset"), HELD)
def test_the_optimiser_of_every_stage(name: str, preset: str) -> None:
    stages = load_method(name).plan(presets_of(name)[preset], setting()).chain()
    found = {
        stage.label: (each.name, each.weight_decay, each.warmup, each.decay, each.clip_norm)
        for stage in stages
        for each in [stage.optimizer]
    }
    assert found == HELD[name, preset]
