"""Multi-stage distillation of a small cross-lingual student.

Ding et al., Multi-stage Distillation Framework for Cross-Lingual Semantic Similarity Matching, Findings of
NAACL 2022.

    assistant   ‖t(s) − a(s)‖² + ‖t(s) − a(t)‖²                     eq. 2, the whole multilingual encoder
    align       ‖e_a(s) − e(s)‖² + ‖e_a(t) − e(t)‖²                 eq. 3, pooled embedding-layer outputs
    student     ‖a(s) − h(s)‖² + ‖a(t) − h(t)‖²                     eq. 4, recurrent unit and bottleneck
    contrast    Σ_ij (cos(t(s_i), t(s_j)) − cos(h(s_i), h(t_j)))² / N² + eq. 6      eq. 5–7

The setting's student names the multilingual encoder (``--student``); its first |RU| layers become the
recurrent unit, applied as often as gives its depth. ``recipe`` has the single-stage baselines of Table 6:
``single`` (eq. 2 on the small student, the bottleneck at random) and ``predistilled`` (the student first
imitates the encoder as it is). Without a bottleneck there is nothing to align, and that stage is left out.

Deviations: losses are means over the dimensions too, as MSE is computed; where the teacher's dimension
differs from the encoder's, a projection is learnt beside the student and dropped (the paper's agree); of a
teacher that gives vectors of length 1 (the paper's do not) assistant and student give such vectors too, or
they would have to learn the length before anything else. Budgets
are in examples: each of the stages 1 to 3 has the setting's, the last one ``contrast_factor`` times that (60
epochs against 20).
"""

from dataclasses import dataclass, replace
from typing import Any

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.objectives.parallel import ParallelContrast, ParallelRegression
from stillhouse.plan.data import Model, Store
from stillhouse.plan.setting import Setting
from stillhouse.plan.stage import Live, Optimizer, Stage
from stillhouse.recipes.two_stages import require_transformer
from stillhouse.students.head import gives_unit_vectors
from stillhouse.students.recurrent import RecurrentStudent
from stillhouse.students.transformer import TransformerStudent

PAPER = (
    "Ding et al., Multi-stage Distillation Framework for Cross-Lingual Semantic Similarity Matching, "
    "Findings of NAACL 2022"
)
PRUNABLE_FROM = "contrast"
NEEDS_PARALLEL = True
RECIPES = ("multi", "single", "predistilled")


@dataclass(frozen=True)
class HyperParameters:
    """What may be searched; defaults are §4.1 and Table 1.

    Attributes:
        learning_rate: Of every stage, at its highest.
        batch_size: Global batch, pairs.
        unit: |RU|, layers of the recurrent unit.
        repeats: How often the unit is applied; 0 gives the encoder's depth, 1 is no recurrence.
        bottleneck: B, of the word vectors; 0 is none.
        bottleneck_start: ``random`` (the paper's), or ``svd``, the nearest to the assistant's word table:
            with small budgets most words are met too rarely to be learnt from nothing.
        contrast: ``teacher`` (eq. 5), ``same`` (Bool, eq. 8), ``ce`` (eq. 9) or ``none``.
        temperature: τ of ``ce``.
        recipe: ``multi``, ``single`` or ``predistilled``.
        contrast_factor: Examples of the last stage as a multiple of an earlier one's.
        optimizer: ``adam`` or ``adamw``.
        weight_decay: Of adamw.
        warmup: Share of the steps with a growing learning rate.
    """

    learning_rate: float = 2e-5
    batch_size: int = 64
    unit: int = 3
    repeats: int = 0
    bottleneck: int = 128
    bottleneck_start: str = "random"
    contrast: str = "teacher"
    temperature: float = 0.05
    recipe: str = "multi"
    contrast_factor: float = 3.0
    optimizer: str = "adamw"
    weight_decay: float = 0.0
    warmup: float = 0.1

    def __post_init__(self) -> None:
        """Check what no student or loss checks for itself."""
        require(self.recipe in RECIPES, f"recipe in {RECIPES}", recipe=self.recipe)
        require(self.repeats >= 0, "repeats >= 0", repeats=self.repeats)
        require(self.contrast_factor > 0, "contrast_factor > 0", contrast_factor=self.contrast_factor)


PRESETS = {
    "paper": HyperParameters(),
    "repo": replace(HyperParameters(), learning_rate=8e-5, weight_decay=0.01),
}
SOURCES = {
    "learning_rate": ("section 4.1", "scripts: 8e-5 or 16e-5 on 8 GPUs"),
    "batch_size": ("section 4.1", "scripts: 64 a GPU"),
    "unit": ("Table 1", "scripts"),
    "bottleneck": ("Table 1", "scripts"),
    "bottleneck_start": ("section 4.6, untrained", "code"),
    "contrast": ("eq. 5", "code: cosines, unscaled"),
    "temperature": ("section 4.5", "section 4.5"),
    "contrast_factor": ("section 4.1: 60 epochs against 20", "scripts: 60 against 10; here as the text"),
    "optimizer": ("section 4.1", "code"),
    "weight_decay": ("not printed; ours", "code"),
    "warmup": ("section 4.1", "code"),
}
"""Where a preset's value stands: in the text, and in the authors' code."""


def check(hp: HyperParameters, student: Spec[Any], teacher: Model) -> None:
    """Refuse another kind of student than its own.

    Raises:
        BadInput: One is asked for.
    """
    require_transformer(student, "crosslingual makes its own recurrent student, by unit and bottleneck")


def plan(hp: HyperParameters, setting: Setting) -> Stage:
    """The contrastive stage, and through it all before; the only or second stage of a baseline."""
    base = setting.student.kwargs["base"]
    shape: dict[str, Any] = {
        "base": base,
        "unit": hp.unit,
        "bottleneck": hp.bottleneck,
        "bottleneck_start": hp.bottleneck_start,
        "dropout": setting.student.kwargs.get("dropout"),
        "seed": setting.seed,
    }
    student = spec(RecurrentStudent, repeats=hp.repeats or None, **shape, **_length(setting))
    followed = spec(ParallelRegression)
    if hp.recipe == "single":
        return _stage(hp, setting, "student", student, followed, _teacher(setting))
    if hp.recipe == "predistilled":
        as_it_is = Live(_whole(setting))
        imitated = _stage(hp, setting, "imitate", student, followed, {}, live=as_it_is)
        return _stage(hp, setting, "student", student, followed, _teacher(setting), start_from=imitated)
    return _stage(
        hp,
        setting,
        "contrast",
        student,
        spec(ParallelContrast, contrast=hp.contrast, temperature=hp.temperature),
        _teacher(setting),
        start_from=_taught(hp, setting, student, shape),
        budget=int(setting.distil_budget * hp.contrast_factor),
    )


def _taught(hp: HyperParameters, setting: Setting, student: Spec[Any], shape: dict[str, Any]) -> Stage:
    """Stages 1 to 3."""
    assistant = _stage(hp, setting, "assistant", _whole(setting), spec(ParallelRegression), _teacher(setting))
    before = assistant
    if hp.bottleneck:
        embedding = spec(RecurrentStudent, repeats=0, **shape)
        whole_embedding = spec(RecurrentStudent, base=shape["base"], unit=1, repeats=0, dropout=0.0)
        before = _stage(
            hp,
            setting,
            "align",
            embedding,
            spec(ParallelRegression),
            {},
            start_from=assistant,
            live=Live(whole_embedding, start_from=assistant),
        )
    told = {
        column: Store(table, assistant, max_length=setting.max_length, compute=setting.autocast)
        for column, table in _examples(setting).columns.items()
    }
    return _stage(hp, setting, "student", student, spec(ParallelRegression), told, start_from=before)


def _stage(
    hp: HyperParameters,
    setting: Setting,
    label: str,
    student: Spec[Any],
    objective: Spec[Any],
    stores: dict[str, Store],
    *,
    start_from: Stage | None = None,
    live: Live | None = None,
    budget: int = 0,
) -> Stage:
    budget = budget or setting.distil_budget
    return Stage(
        label=label,
        student=student,
        objective=objective,
        examples=_examples(setting),
        stores=stores,
        budget=budget,
        batch_size=hp.batch_size,
        optimizer=Optimizer(
            hp.learning_rate, name=hp.optimizer, warmup=hp.warmup, weight_decay=hp.weight_decay
        ),
        start_from=start_from,
        live=live,
        evaluate_every=budget // setting.evaluations,
        **setting.common(),
    )


def _whole(setting: Setting) -> Spec[Any]:
    """The multilingual encoder with all its layers, mean-pooled."""
    kwargs = setting.student.kwargs
    length = {"normalize": False, **_length(setting)}
    return spec(TransformerStudent, base=kwargs["base"], dropout=kwargs.get("dropout"), **length)


def _length(setting: Setting) -> dict[str, bool]:
    return {"normalize": True} if gives_unit_vectors(setting.teacher) else {}


def _teacher(setting: Setting) -> dict[str, Store]:
    assert setting.parallel_store is not None, "a method that needs parallel text says so before it plans"
    return {"source": setting.parallel_store}


def _examples(setting: Setting) -> Any:
    assert setting.parallel is not None, "a method that needs parallel text says so before it plans"
    return setting.parallel
