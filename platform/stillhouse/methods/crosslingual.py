"""Multi-stage distillation of a small cross-lingual student.

Ding et al., Multi-stage Distillation Framework for Cross-Lingual Semantic Similarity Matching, Findings of
NAACL 2022.

    assistant   ‖t(s) − a(s)‖² + ‖t(s) − a(t)‖²                     eq. 2, the full multilingual encoder
    align       ‖e_a(s) − e(s)‖² + ‖e_a(t) − e(t)‖²                 eq. 3, pooled embedding-layer outputs
    student     ‖a(s) − h(s)‖² + ‖a(t) − h(t)‖²                     eq. 4, recurrent unit and bottleneck
    contrast    Σ_ij (cos(t(s_i), t(s_j)) − cos(h(s_i), h(t_j)))² / N² + eq. 6      eq. 5–7

The setting's student names the multilingual encoder (``--student``); its first |RU| layers become the
recurrent unit, applied often enough to reach its depth. ``recipe`` offers the baselines of Table 6:
``single`` (eq. 2 on the small student, with a random bottleneck) and ``predistilled`` (the student first
imitates the encoder as published). Without a bottleneck there is nothing to align, and that stage is left
out. §4.1 trains stages 1 to 3 on four corpora and stage 4 on one of them, TED2020: ``parallel.contrast``.

The squares of eq. 2–4 and 6 are summed over the dimensions, as printed (``dimensions = sum``); the authors'
code takes the mean (``mean``). In stages 1 to 3 this only scales the loss. In stage 4 it decides the balance
of eq. 7. With vectors of length 1 and 384 dimensions, the gradient of eq. 5 in the student's weights is 330
to 770 times that of the mean, and 0.9 to 2.0 times that of the sum (English and German, batch 32, measured
at the start and after 40 and 120 steps); ``contrast_weight`` moves it further.

Deviations: if the teacher's dimension differs from the encoder's, a projection is learnt with the student,
then dropped (the paper's dimensions agree). If the teacher's vectors have length 1 (the paper's do not), so
have those of assistant and student; otherwise they would have to learn the length before anything else. They
pool as the teacher does, unless ``student.pooling`` says otherwise; the embedding layers of stage 2 are
averaged. The encoder as published reads texts with its own prompts, and the assistant with the student's.
Every stage has the setting's budget, in examples or in epochs of its own pairs; the last one may have epochs
of its own, ``contrast_epochs`` (60 against 20 in section 4.2).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.core.model_folder import read_folder
from stillhouse.core.roles import Reading
from stillhouse.experiments.kinds.parallel import Parallel
from stillhouse.losses.multilingual import MultilingualContrast, MultilingualCrossEntropy
from stillhouse.losses.regression import MSE
from stillhouse.methods.baselines import Baseline
from stillhouse.methods.stages import Schedule, check_live, optimizer_of, require_transformer, stage_of
from stillhouse.objectives.parallel_sentences import ParallelContrast, ParallelRegression
from stillhouse.students.head import head_of
from stillhouse.students.pooling import POOLER
from stillhouse.students.recurrent import RecurrentStudent
from stillhouse.students.transformer import TransformerStudent
from stillhouse.teachers.prompts import check_prompts
from stillhouse.values.data import Examples, Model, Store, TableStore, Teacher
from stillhouse.values.setting import Setting
from stillhouse.values.stage import Live, Stage

PAPER = (
    "Ding et al., Multi-stage Distillation Framework for Cross-Lingual Semantic Similarity Matching, "
    "Findings of NAACL 2022"
)
PRUNABLE_FROM = "contrast"
needs = (Parallel,)
BASELINE = Baseline(
    "single stage", method="", values={"recipe": "single"}, rates={"learning_rate": (2e-5, 8e-5, 3e-4)}
)
"""Table 6: eq. 2 on the small student, here with as many examples as all stages."""
BUDGET = {"distil": 32_768}
"""512 steps per stage; the paper trains for 20 epochs, and 60 in the last stage."""
RECIPES = ("multi", "single", "predistilled")
CONTRASTS = ("teacher", "same", "ce", "none")


@dataclass(frozen=True)
class HyperParameters(Schedule):
    """Hyper-parameters that may be searched; defaults are those of §4.2 and Table 1.

    Attributes:
        learning_rate: Peak learning rate of every stage.
        batch_size: Global batch size, in pairs.
        unit: Number of layers of the recurrent unit, |RU|.
        repeats: How often the unit is applied; 0 reaches the encoder's depth, 1 means no recurrence.
        bottleneck: Dimension B of the word vectors; 0 leaves the bottleneck out.
        bottleneck_start: ``random`` (as in the paper) or ``svd``, the best approximation of the assistant's
            word table: with a small budget most words are too rare to be learnt from scratch.
        dimensions: How the squared error is reduced over the dimensions: ``sum`` or ``mean``.
        contrast: ``teacher`` (eq. 5), ``same`` (Bool, eq. 8), ``ce`` (eq. 9) or ``none``.
        contrast_weight: Weight of the contrast beside the regression (1 in eq. 7).
        temperature: τ of ``ce``.
        recipe: ``multi``, ``single`` or ``predistilled``.
        contrast_epochs: Passes of the last stage over its own pairs; 0 takes the budget of an earlier stage.
    """

    learning_rate: float = 2e-5
    batch_size: int = 64
    unit: int = 3
    repeats: int = 0
    bottleneck: int = 128
    bottleneck_start: str = "random"
    dimensions: str = "sum"
    contrast: str = "teacher"
    contrast_weight: float = 1.0
    temperature: float = 0.05
    recipe: str = "multi"
    contrast_epochs: float = 0.0
    optimizer: str = "adamw"
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        """Check what no student or loss checks."""
        require(self.contrast in CONTRASTS, f"contrast in {CONTRASTS}", contrast=self.contrast)
        require(self.dimensions in ("sum", "mean"), "dimensions in (sum, mean)", dimensions=self.dimensions)
        require(self.contrast_weight > 0, "contrast_weight > 0", contrast_weight=self.contrast_weight)
        require(self.recipe in RECIPES, f"recipe in {RECIPES}", recipe=self.recipe)
        require(self.repeats >= 0, "repeats >= 0", repeats=self.repeats)
        require(self.contrast_epochs >= 0, "contrast_epochs >= 0", contrast_epochs=self.contrast_epochs)


PRESETS = {
    "paper": HyperParameters(),
    "repo": replace(HyperParameters(), learning_rate=8e-5, batch_size=512, dimensions="mean"),
}
SOURCES = {
    "learning_rate": ("section 4.2", "scripts: 8e-5 or 16e-5 on 8 GPUs"),
    "batch_size": ("section 4.2", "scripts: 64 on each of 8 GPUs"),
    "unit": ("Table 1", "scripts"),
    "bottleneck": ("Table 1", "scripts"),
    "bottleneck_start": ("section 4.6, untrained", "code"),
    "dimensions": ("eq. 2–4, 6", "code: MSELoss, on raw vectors"),
    "contrast_weight": ("eq. 7", "code"),
    "contrast": ("eq. 5", "code: cosines, unscaled"),
    "temperature": ("section 4.5", "section 4.5"),
    "contrast_epochs": ("section 4.2: 60; here the budget", "scripts: 60; here the budget"),
    "optimizer": ("section 4.2", "code"),
    "weight_decay": ("section 4.2: AdamW, its decay not printed; as in the code", "code"),
    "warmup": ("section 4.2", "code"),
    "decay": ("not printed; as in the code", "code"),
    "clip_norm": ("not printed; as in the code", "code"),
}
"""Source of each preset's value: in the text, and in the authors' code."""


def check(hp: HyperParameters, student: Spec[Any], teacher: Teacher) -> None:
    """Refuse a student of another kind than the method's own.

    Raises:
        BadInput: Another kind of student was chosen.
    """
    require_transformer(student, "crosslingual trains a recurrent student of its own")


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """Plan all stages up to the contrastive one, or those of a single-stage baseline."""
    base = setting.student.kwargs["base"]
    shape: dict[str, Any] = {
        "base": base,
        "unit": hp.unit,
        "bottleneck": hp.bottleneck,
        "bottleneck_start": hp.bottleneck_start,
        "dropout": setting.student.kwargs.get("dropout"),
        "seed": setting.seed,
    }
    student = spec(RecurrentStudent, repeats=hp.repeats or None, **shape, **_head(setting))
    regression = spec(ParallelRegression, mse=_mse(hp))
    if hp.recipe == "single":
        return _stage(hp, setting, "student", student, regression, _teacher(setting))
    if hp.recipe == "predistilled":
        published = Live(_full_encoder(setting), reading=_published_reading(setting))
        imitated = _stage(hp, setting, "imitate", student, regression, {}, live=published)
        return _stage(hp, setting, "student", student, regression, _teacher(setting), start_from=imitated)
    return _stage(
        hp,
        setting,
        "contrast",
        student,
        spec(ParallelContrast, mse=_mse(hp), contrast=_contrast(hp), weight=hp.contrast_weight),
        _teacher(setting),
        start_from=_first_stages(hp, setting, student, shape),
        examples=setting[Parallel].contrast,
        epochs=hp.contrast_epochs,
    )


def _mse(hp: HyperParameters) -> Spec[MSE]:
    return spec(MSE, dimensions=hp.dimensions)


def _contrast(hp: HyperParameters) -> Spec[Any] | None:
    if hp.contrast == "none":
        return None
    if hp.contrast == "ce":
        return spec(MultilingualCrossEntropy, temperature=hp.temperature)
    return spec(MultilingualContrast, labels=hp.contrast)


def _first_stages(hp: HyperParameters, setting: Setting, student: Spec[Any], shape: dict[str, Any]) -> Stage:
    """Plan stages 1 to 3."""
    regression, encoder = spec(ParallelRegression, mse=_mse(hp)), _full_encoder(setting)
    assistant = _stage(hp, setting, "assistant", encoder, regression, _teacher(setting))
    before = assistant
    if hp.bottleneck:
        embedding = spec(RecurrentStudent, repeats=0, **shape)
        full_embedding = spec(RecurrentStudent, base=shape["base"], unit=1, repeats=0, dropout=0.0)
        before = _stage(
            hp,
            setting,
            "align",
            embedding,
            regression,
            {},
            start_from=assistant,
            live=Live(full_embedding, start_from=assistant),
        )
    reading: dict[str, Any] = {"max_length": setting.max_length, "prompt": setting.prompts.plain}
    stores = {
        column: Store(table, assistant, compute=setting.autocast, **reading)
        for column, table in setting[Parallel].examples.columns.items()
    }
    return _stage(hp, setting, "student", student, regression, stores, start_from=before)


def _stage(
    hp: HyperParameters,
    setting: Setting,
    label: str,
    student: Spec[Any],
    objective: Spec[Any],
    stores: Mapping[str, TableStore],
    *,
    start_from: Stage | None = None,
    live: Live | None = None,
    epochs: float = 0.0,
    examples: Examples | None = None,
) -> Stage:
    return stage_of(
        setting,
        label=label,
        student=student,
        objective=objective,
        examples=examples or setting[Parallel].examples,
        stores=stores,
        epochs=epochs,
        batch_size=hp.batch_size,
        optimizer=optimizer_of(hp, hp.learning_rate),
        start_from=start_from,
        live=live,
    )


def _full_encoder(setting: Setting) -> Spec[Any]:
    """Return the multilingual encoder with all its layers."""
    kwargs = setting.student.kwargs
    return spec(TransformerStudent, base=kwargs["base"], dropout=kwargs.get("dropout"), **_head(setting))


def _published_reading(setting: Setting) -> Reading | None:
    """Return the published encoder's way of reading: with its own prompts, at the student's length."""
    base: Model = setting.student.kwargs["base"]
    own = read_folder(Path(base.path)).prompts
    check_live(base)
    check_prompts(own, base, setting.max_length, "student")
    return setting.unlike_student(Reading(setting.max_length, own))


def _head(setting: Setting) -> dict[str, Any]:
    """Pooling and norm of assistant and student: those of the setting's student, by default the teacher's."""
    kwargs = setting.student.kwargs
    pooling = kwargs.get("pooling", "mean")
    normalize = kwargs.get("normalize", head_of(setting.teacher).normalize)
    return {"pooling": "cls" if pooling == POOLER else pooling, "normalize": normalize}


def _teacher(setting: Setting) -> dict[str, TableStore]:
    return {"source": setting[Parallel].store}
