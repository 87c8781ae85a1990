"""IBKD: Text Representation Distillation via Information Bottleneck Principle.

Zhang et al., ACL Findings 2023, arXiv:2311.05472.

    distil     L = InfoNCE(S, T) + β₁ · HSIC(X, S)                     eq. 8, on unlabelled text
    finetune   L = InfoNCE_sup(s, s⁺, s⁻) + β₂ · HSIC(X, S)            eq. 9 and 10, K hard negatives
               S' = W_proj S, if ``projection`` is set                 eq. 11

InfoNCE is eq. 5 with a learnable W; HSIC is eq. 6 with the kernel of eq. 7.

Deviations from the printed text, where it cannot be meant as printed: the signs of eq. 8–10 would maximise
the loss; eq. 5 counts the positive twice in the denominator; eq. 7 lacks the minus sign and the square. Where
the text is silent (which layer is X, normalisation, the schedule), the preset ``paper`` takes the simplest
reading: X is the mean of the embedding layer's output, vectors are L2-normalised before the kernels (γ has no
meaning otherwise), and the learning rate falls linearly after a warm-up of 10 %. The preset ``repo`` follows
the authors' code.
"""

from dataclasses import dataclass, replace
from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.experiments.kinds.pairs import Pairs
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.losses.contrastive import InfoNCE, SupervisedInfoNCE
from stillhouse.losses.hsic import HSIC
from stillhouse.objectives.information_bottleneck import InformationBottleneck, SupervisedBottleneck
from stillhouse.plan.data import Model
from stillhouse.plan.setting import Setting
from stillhouse.plan.stage import Optimizer, Stage
from stillhouse.recipes.stages import changed, student_of
from stillhouse.recipes.two_stages import distilled, supervised
from stillhouse.students.static import StaticStudent

PAPER = (
    "Zhang et al., Text Representation Distillation via Information Bottleneck Principle, "
    "ACL Findings 2023, arXiv:2311.05472"
)
PRUNABLE_FROM = "distil"
needs = (Sentences, Pairs.optional)


@dataclass(frozen=True)
class HyperParameters:
    """What may be searched; defaults are those of Table 1 (STS) and §4.3.

    Attributes:
        distil_learning_rate: Peak learning rate of the distillation stage.
        distil_batch_size: Global batch size of the distillation stage.
        distil_epochs: Passes over the unlabelled text; 0 uses the setting's budget, which is equal for all
            trials.
        distil_temperature: τ of eq. 5.
        beta1: β₁ of eq. 8.
        gamma: γ of eq. 7.
        kernel: ``rbf``, ``imq`` or ``linear`` (Table 4).
        finetune_learning_rate: Peak learning rate of the fine-tuning stage.
        finetune_batch_size: Global batch size of the fine-tuning stage.
        finetune_temperature: τ of eq. 10.
        beta2: β₂ of eq. 9.
        projection: Dimension d' of eq. 11; 0 leaves W_proj out.
        layers: Layers of the base model that the student keeps; empty uses the setting's student.
        similarity: ``bilinear`` (sᵀWt/τ, eq. 5) or ``cosine`` (cos(Ws, t)/τ).
        keep_projection: Keep W (eq. 5), without a bias, as the student's last layer, whose vectors are
            compared with the teacher's by their cosine; otherwise W is dropped after the distillation.
        distil_input_layer: X of the distillation: ``embedding`` or ``penultimate``.
        finetune_input_layer: X of the fine-tuning.
        finetune_gamma: γ of the fine-tuning; 0 uses ``gamma``.
        bandwidth: ``fixed`` (γ as given) or ``median`` (the median heuristic).
        estimator: ``biased_l2`` (1/l², eq. 6) or ``biased`` (1/(n−1)²).
        normalize_kernels: L2-normalise X and S before the kernels.
        optimizer: ``adam`` or ``adamw``.
        warmup: Fraction of the steps with a rising learning rate.
    """

    distil_learning_rate: float = 1e-4
    distil_batch_size: int = 256
    distil_epochs: int = 0
    distil_temperature: float = 0.1
    beta1: float = 1.0
    gamma: float = 0.5
    kernel: str = "rbf"
    finetune_learning_rate: float = 3e-5
    finetune_batch_size: int = 256
    finetune_temperature: float = 0.05
    beta2: float = 0.5
    projection: int = 0
    layers: tuple[int, ...] = ()
    similarity: str = "bilinear"
    keep_projection: bool = False
    distil_input_layer: str = "embedding"
    finetune_input_layer: str = "embedding"
    finetune_gamma: float = 0.0
    bandwidth: str = "fixed"
    estimator: str = "biased_l2"
    normalize_kernels: bool = True
    optimizer: str = "adam"
    warmup: float = 0.1

    def __post_init__(self) -> None:
        """Check what no loss or optimiser checks."""
        object.__setattr__(self, "layers", tuple(self.layers))
        require(self.projection >= 0, "projection >= 0", projection=self.projection)
        require(
            self.projection == 0 or not self.keep_projection,
            "projection = 0 if W is kept as the student's last layer",
            projection=self.projection,
            keep_projection=self.keep_projection,
        )
        require(self.distil_epochs >= 0, "distil_epochs >= 0", distil_epochs=self.distil_epochs)


PRESETS = {
    "paper": HyperParameters(),
    "repo": replace(
        HyperParameters(),
        distil_temperature=1.0,
        beta1=0.2,
        gamma=1.0,
        finetune_learning_rate=1e-6,
        finetune_batch_size=128,
        beta2=1.0,
        similarity="cosine",
        finetune_input_layer="penultimate",
        finetune_gamma=0.1,
        estimator="biased",
        normalize_kernels=False,
        optimizer="adamw",
        warmup=0.0,
    ),
}


SOURCES = {
    "distil_learning_rate": ("Table 1, STS", "Table 1"),
    "distil_batch_size": ("Table 1, STS", "shipped settings"),
    "distil_epochs": ("Table 1 has 10; here the budget", "shipped settings have 10; here the budget"),
    "distil_temperature": ("Table 1, STS", "shipped settings"),
    "beta1": ("section 4.3", "shipped settings (its λ)"),
    "gamma": ("section 4.3", "shipped settings"),
    "kernel": ("section 4.3", "code"),
    "finetune_learning_rate": ("Table 1, STS", "shipped settings"),
    "finetune_batch_size": ("Table 1, STS", "shipped settings"),
    "finetune_temperature": ("Table 1, STS", "shipped settings"),
    "beta2": ("section 4.3", "shipped settings (its λ)"),
    "similarity": ("eq. 5", "code: cosine of a projection with bias"),
    "keep_projection": ("eq. 9: S, without W", "code: dropped"),
    "distil_input_layer": ("not printed; ours", "code: mean of the embedding layer"),
    "finetune_input_layer": ("not printed; ours", "code: hidden[-2]"),
    "finetune_gamma": ("section 4.3, the same as gamma", "code: fixed to 0.1"),
    "estimator": ("eq. 6", "code: 1/(n-1)²"),
    "normalize_kernels": ("not printed; ours", "code: raw vectors"),
    "optimizer": ("section 4.3", "code"),
    "warmup": ("not printed; ours", "code: none"),
}
"""Source of each preset's value: in the text, and in the authors' code."""


def check(hp: HyperParameters, student: Spec[Any], teacher: Model) -> None:
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


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan the distillation and, if there is labelled text, the fine-tuning."""
    before = _distil(hp, setting)
    if setting.get(Pairs) is None or setting.finetune_budget == 0:
        require(
            hp.projection == 0,
            "projection = 0 without a fine-tuning stage (eq. 11 adds W_proj there)",
            projection=hp.projection,
        )
        return before
    return _finetune(hp, setting, before)


def _distil(hp: HyperParameters, setting: Setting) -> Stage:
    objective = spec(
        InformationBottleneck,
        nce=spec(InfoNCE, temperature=hp.distil_temperature, **_alignment(hp)),
        hsic=_hsic(hp, hp.gamma),
        beta=hp.beta1,
        input_layer=hp.distil_input_layer,
    )
    return distilled(
        setting,
        objective,
        Optimizer(hp.distil_learning_rate, name=hp.optimizer, warmup=hp.warmup),
        label="distil",
        student=student_of(setting, hp.layers, keep_projection=hp.keep_projection),
        batch_size=hp.distil_batch_size,
        budget=hp.distil_epochs * setting[Sentences].rows,
    )


def _alignment(hp: HyperParameters) -> dict[str, Any]:
    """Return how S is compared with T: through W in the loss or, if the student keeps W, by cosine."""
    if hp.keep_projection:
        return {"similarity": "cosine", "projection": False}
    return {"similarity": hp.similarity, "projection": True, "bias": hp.similarity == "cosine"}


def _finetune(hp: HyperParameters, setting: Setting, before: Stage) -> Stage:
    student = changed(before.student, projection=hp.projection) if hp.projection else before.student
    objective = spec(
        SupervisedBottleneck,
        nce=spec(SupervisedInfoNCE, temperature=hp.finetune_temperature),
        hsic=_hsic(hp, hp.finetune_gamma or hp.gamma),
        beta=hp.beta2,
        input_layer=hp.finetune_input_layer,
    )
    return supervised(
        setting,
        objective,
        Optimizer(hp.finetune_learning_rate, name=hp.optimizer, warmup=hp.warmup),
        student=student,
        batch_size=hp.finetune_batch_size,
        before=before,
    )


def _hsic(hp: HyperParameters, gamma: float) -> Spec[HSIC]:
    return spec(
        HSIC,
        gamma=gamma,
        kernel=hp.kernel,
        bandwidth=hp.bandwidth,
        estimator=hp.estimator,
        normalize=hp.normalize_kernels,
    )
