"""IBKD: Text Representation Distillation via Information Bottleneck Principle.

Zhang et al., ACL Findings 2023, arXiv:2311.05472.

    distil     L = InfoNCE(S, T) + β₁ · HSIC(X, S)                     eq. 8, on unlabelled text
    finetune   L = InfoNCE_sup(s, s⁺, s⁻) + β₂ · HSIC(X, S)            eq. 9 and 10, K hard negatives
               S' = W_proj S, if ``projection`` is set                 eq. 11

InfoNCE is eq. 5 with a learnable W; HSIC is eq. 6 with the kernel of eq. 7. Unless the experiment states K,
eight hard negatives are mined per pair (section 4.3).

Deviations from the printed text, where it cannot be meant as printed: the signs of eq. 8–10 would maximise
the loss; eq. 5 counts the positive twice in the denominator; eq. 7 lacks the minus sign and the square.
Where the text is silent (which layer is X, normalisation, the schedule), the preset ``paper`` takes the
simplest reading: X is the mean of the embedding layer's output, vectors are L2-normalised before the
kernels (γ has no meaning otherwise), and the learning rate falls linearly after a warm-up of 10 %.
``dense_retrieval`` is the other column of Table 1. The preset ``repo`` follows the authors' code, with two
exceptions: its last layer, Linear → 128, has a bias there, W_proj (eq. 11) has none; and the epochs of its
scripts are replaced by the budget.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.losses.contrastive import InfoNCE, SupervisedInfoNCE
from stillhouse.losses.hsic import HSIC
from stillhouse.methods.stages import Layered, changed, learnt_map, optimizer_of, student_of
from stillhouse.methods.two_stages import distilled, supervised
from stillhouse.objectives.information_bottleneck import InformationBottleneck, SupervisedBottleneck
from stillhouse.students.static import StaticStudent
from stillhouse.values.data import Teacher
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Stage

PAPER = (
    "Zhang et al., Text Representation Distillation via Information Bottleneck Principle, "
    "ACL Findings 2023, arXiv:2311.05472"
)
PRUNABLE_FROM = "distil"
needs = (Sentences, Pairs.optional)
NEGATIVES = 8
"""Section 4.3: "we select 8 hard negatives for each query"."""


@dataclass(frozen=True)
class HyperParameters(Layered):
    """Hyper-parameters that may be searched; defaults are those of Table 1 (STS) and §4.3.

    Attributes:
        distil_learning_rate: Peak learning rate of the distillation stage.
        distil_batch_size: Global batch size of the distillation stage.
        distil_epochs: Passes over the unlabelled text, as ``budget.epochs``, which trials may differ in; 0
            takes the budget, which is equal for all of them.
        distil_temperature: τ of eq. 5.
        beta1: β₁ of eq. 8.
        gamma: γ of eq. 7.
        kernel: ``rbf``, ``imq`` or ``linear`` (Table 4).
        kernel_forms: ``usual`` or ``code``: how ``imq`` and ``linear``, which are not printed, are computed.
        finetune_learning_rate: Peak learning rate of the fine-tuning stage.
        finetune_batch_size: Global batch size of the fine-tuning stage.
        finetune_epochs: Passes over the labelled text, as ``budget.finetune_epochs``; 0 takes the budget.
        finetune_temperature: τ of eq. 10.
        share_negatives: Compare an anchor also with the hard negatives of the others; eq. 10 has its own K.
        beta2: β₂ of eq. 9.
        projection: Dimension d' of eq. 11, which the fine-tuning adds; 0 leaves W_proj out.
        similarity: ``bilinear`` (sᵀWt/τ, eq. 5) or ``cosine`` (cos(Ws, t)/τ).
        keep_projection: Keep W (eq. 5), without a bias, as the student's last layer, whose vectors are
            compared with the teacher's by their cosine; otherwise W is dropped after the distillation. A
            kept W excludes ``projection``; that of a preset is left out.
        distil_input_layer: X of the distillation: ``embedding`` or ``penultimate``.
        finetune_input_layer: X of the fine-tuning.
        output: S of both HSIC terms: ``vector``, what the student returns, or ``state``, the mean of its last
            layer, before any projection and normalisation.
        finetune_texts: Texts of the HSIC of the fine-tuning: ``queries``, or ``all``: queries, passages and
            hard negatives.
        finetune_gamma: γ of the fine-tuning; 0 uses ``gamma``.
        bandwidth: ``fixed`` (γ as given) or ``median`` (the median heuristic).
        estimator: ``biased_l2`` (1/l², eq. 6) or ``biased`` (1/(n−1)²).
        normalize_kernels: L2-normalise X and S before the kernels.
    """

    distil_learning_rate: float = 1e-4
    distil_batch_size: int = 256
    distil_epochs: int = 0
    distil_temperature: float = 0.1
    beta1: float = 1.0
    gamma: float = 0.5
    kernel: str = "rbf"
    kernel_forms: str = "usual"
    finetune_learning_rate: float = 3e-5
    finetune_batch_size: int = 256
    finetune_epochs: int = 0
    finetune_temperature: float = 0.05
    share_negatives: bool = False
    beta2: float = 0.5
    projection: int = 0
    similarity: str = "bilinear"
    keep_projection: bool = False
    distil_input_layer: str = "embedding"
    finetune_input_layer: str = "embedding"
    output: str = "vector"
    finetune_texts: str = "queries"
    finetune_gamma: float = 0.0
    bandwidth: str = "fixed"
    estimator: str = "biased_l2"
    normalize_kernels: bool = True

    def __post_init__(self) -> None:
        """Check what no loss or optimiser checks."""
        require(self.projection >= 0, "projection >= 0", projection=self.projection)
        require(self.distil_epochs >= 0, "distil_epochs >= 0", distil_epochs=self.distil_epochs)
        require(self.finetune_epochs >= 0, "finetune_epochs >= 0", finetune_epochs=self.finetune_epochs)


PRESETS = {
    "paper": HyperParameters(),
    "dense_retrieval": replace(
        HyperParameters(),
        distil_batch_size=128,
        finetune_learning_rate=1e-5,
        finetune_batch_size=128,
    ),
    "repo": replace(
        HyperParameters(),
        distil_temperature=1.0,
        beta1=0.2,
        gamma=1.0,
        finetune_learning_rate=1e-6,
        finetune_batch_size=128,
        beta2=1.0,
        kernel_forms="code",
        share_negatives=True,
        projection=128,
        similarity="cosine",
        finetune_input_layer="penultimate",
        output="state",
        finetune_texts="all",
        finetune_gamma=0.1,
        estimator="biased",
        normalize_kernels=False,
        warmup=0.0,
    ),
}


SOURCES = {
    "distil_learning_rate": ("Table 1", "Table 1"),
    "distil_batch_size": ("Table 1", "shipped settings"),
    "distil_epochs": (
        "Table 1: 10 for STS, 3 for DR; here the budget",
        "shipped settings: 10; here the budget",
    ),
    "distil_temperature": ("Table 1", "shipped settings"),
    "beta1": ("section 4.3", "shipped settings (its λ)"),
    "gamma": ("section 4.3", "shipped settings"),
    "kernel": ("section 4.3", "code"),
    "kernel_forms": ("not printed; ours", "code: imq (γ + d²)^-½, linear over unit rows"),
    "finetune_learning_rate": ("Table 1", "shipped settings"),
    "finetune_batch_size": ("Table 1", "shipped settings"),
    "finetune_epochs": ("Table 1: 3; here the budget", "shipped settings: 3; here the budget"),
    "finetune_temperature": ("Table 1", "shipped settings"),
    "share_negatives": ("eq. 10: the anchor's own K", "code: all of the batch"),
    "beta2": ("section 4.3", "shipped settings (its λ)"),
    "projection": ("eq. 11, only where a table says 128", "code: always, with a bias; here without"),
    "similarity": ("eq. 5", "code: cosine of a projection with bias"),
    "keep_projection": ("eq. 9: S, without W", "code: dropped"),
    "distil_input_layer": ("not printed; ours", "code: mean of the embedding layer"),
    "finetune_input_layer": ("not printed; ours", "code: hidden[-2]"),
    "output": ("eq. 8 and 9: S", "code: the pooled state, before the projection"),
    "finetune_texts": ("eq. 9: one x per instance", "code: all 3B sentences"),
    "finetune_gamma": ("section 4.3, the same as gamma", "code: fixed to 0.1"),
    "bandwidth": ("section 4.3: γ is fixed", "code"),
    "estimator": ("eq. 6", "code: 1/(n-1)²"),
    "normalize_kernels": ("not printed; ours", "code: raw vectors"),
    "optimizer": ("section 4.3: Adam", "code: AdamW without decay, which is Adam"),
    "weight_decay": ("section 4.3: Adam", "code: AdamW's default in its trainer, 0"),
    "warmup": ("not printed; ours", "code: none"),
    "decay": ("not printed; ours", "code: the default of its trainer"),
    "clip_norm": ("not printed; ours", "code: the default of its trainer"),
}
"""Source of each preset's value: in the text, and in the authors' code."""


def check(hp: HyperParameters, student: Spec[Any], teacher: Teacher) -> None:
    """Refuse a bottleneck over a student without layers: its X is S, and minimising HSIC(X, S) erases both.

    Raises:
        BadInput: The student is static, and β₁ or β₂ is above 0.
    """
    require(
        student.target is not StaticStudent or hp.beta1 == hp.beta2 == 0,
        "beta1 = beta2 = 0 for a static student, which has no layers between X and S",
        beta1=hp.beta1,
        beta2=hp.beta2,
        remedy="Set both to 0, or train ckd.",
    )


def check_given(given: Mapping[str, Any], setting: Setting) -> None:
    """Refuse a W_proj that was asked for where no stage adds it; the one of a preset is left out there.

    Raises:
        BadInput: ``projection`` is set, and W is kept or there is no fine-tuning stage.
    """
    require(
        not (given.get("projection") and given.get("keep_projection")),
        "projection = 0 if W is kept as the student's last layer",
        projection=given.get("projection"),
        keep_projection=given.get("keep_projection"),
    )
    require(
        not given.get("projection") or _fine_tunes(setting),
        "projection = 0 without a fine-tuning stage (eq. 11 adds W_proj there)",
        projection=given.get("projection"),
        remedy="Give labelled text and a --finetune-budget, or leave projection out.",
    )


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan the distillation and, if there is labelled text, the fine-tuning."""
    before = _distil(hp, setting)
    return _finetune(hp, setting, before) if _fine_tunes(setting) else before


def _fine_tunes(setting: Setting) -> bool:
    return setting.get(Pairs) is not None and setting.finetune_budget != 0


def _distil(hp: HyperParameters, setting: Setting) -> Stage:
    objective = spec(
        InformationBottleneck,
        nce=spec(InfoNCE, temperature=hp.distil_temperature, **_alignment(hp)),
        hsic=_hsic(hp, hp.gamma),
        beta=hp.beta1,
        input_layer=hp.distil_input_layer,
        output=hp.output,
    )
    return distilled(
        setting,
        objective,
        optimizer_of(hp, hp.distil_learning_rate),
        label="distil",
        student=student_of(setting, hp.layers, keep_projection=hp.keep_projection),
        batch_size=hp.distil_batch_size,
        epochs=hp.distil_epochs,
    )


def _alignment(hp: HyperParameters) -> dict[str, Any]:
    """Return how S is compared with T: through W in the loss or, if the student keeps W, by cosine."""
    similarity = "cosine" if hp.keep_projection else hp.similarity
    own = learnt_map(keep_projection=hp.keep_projection, projection=True, bias=similarity == "cosine")
    return {"similarity": similarity, **own}


def _finetune(hp: HyperParameters, setting: Setting, before: Stage) -> Stage:
    adds_projection = hp.projection > 0 and not hp.keep_projection
    student = changed(before.student, projection=hp.projection) if adds_projection else before.student
    objective = spec(
        SupervisedBottleneck,
        nce=spec(SupervisedInfoNCE, temperature=hp.finetune_temperature, share_negatives=hp.share_negatives),
        hsic=_hsic(hp, hp.finetune_gamma or hp.gamma),
        beta=hp.beta2,
        input_layer=hp.finetune_input_layer,
        output=hp.output,
        texts=hp.finetune_texts,
    )
    return supervised(
        setting,
        objective,
        optimizer_of(hp, hp.finetune_learning_rate),
        student=student,
        batch_size=hp.finetune_batch_size,
        before=before,
        epochs=hp.finetune_epochs,
    )


def _hsic(hp: HyperParameters, gamma: float) -> Spec[HSIC]:
    return spec(
        HSIC,
        gamma=gamma,
        kernel=hp.kernel,
        forms=hp.kernel_forms,
        bandwidth=hp.bandwidth,
        estimator=hp.estimator,
        normalize=hp.normalize_kernels,
    )
