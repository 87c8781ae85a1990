"""From ``--student-kind`` to the student: a transformer with fewer layers, a table of tokens, tied layers."""

from typing import TYPE_CHECKING, Any

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.plan.data import Model

if TYPE_CHECKING:
    from stillhouse.experiments.experiment import Experiment

KINDS = ("transformer", "static", "recurrent")
STATIC_STARTS = ("words", "contextless")


def check_kind(wanted: "Experiment") -> None:
    """Refuse a kind that there is not, or the options of another kind.

    Raises:
        BadInput: One of them.
    """
    kind = wanted.student_kind
    require(kind in KINDS, f"student_kind in {KINDS}", student_kind=kind)
    require(wanted.static_start in STATIC_STARTS, f"static_start in {STATIC_STARTS}", got=wanted.static_start)
    for name in ("static_dim", "recurrent_unit", "bottleneck"):
        require(getattr(wanted, name) >= 0, f"{name} >= 0", **{name: getattr(wanted, name)})
    owned = {
        "static_dim": ("static", wanted.static_dim, 0),
        "static_start": ("static", wanted.static_start, "words"),
        "recurrent_unit": ("recurrent", wanted.recurrent_unit, 0),
        "bottleneck": ("recurrent", wanted.bottleneck, 0),
        "layers": ("transformer", wanted.layers, "every-other"),
        "keep": ("transformer", wanted.keep, 0),
    }
    for name, (owner, value, default) in owned.items():
        both: dict[str, Any] = {name: value, "student_kind": kind}
        require(kind == owner or value == default, f"{name} goes with a student of the kind {owner}", **both)
    require(
        kind != "recurrent" or wanted.recurrent_unit >= 1,
        "a recurrent student is given its unit",
        recurrent_unit=wanted.recurrent_unit,
        remedy="Say how many of the first layers recur, such as --recurrent-unit 3.",
    )


def student_spec(wanted: "Experiment", teacher: Model) -> Spec[Any]:
    """The student, made from the teacher or from another checkpoint."""
    from stillhouse.students.recurrent import RecurrentStudent
    from stillhouse.students.static import StaticStudent
    from stillhouse.teachers.weights import resolve_model

    base = resolve_model(wanted.student) if wanted.student else teacher
    if wanted.student_kind == "static":
        start = {"dim": wanted.static_dim, "start": wanted.static_start}
        return spec(StaticStudent, base=base, seed=wanted.seed, **start)
    dropout = wanted.dropout if wanted.dropout >= 0 else None
    if wanted.student_kind == "recurrent":
        shape = {"unit": wanted.recurrent_unit, "bottleneck": wanted.bottleneck}
        # From random factors a narrow table learns slowly; the method of its paper has a stage for that.
        start = {"bottleneck_start": "svd", "normalize": True}
        return spec(RecurrentStudent, base=base, dropout=dropout, seed=wanted.seed, **shape, **start)
    return _transformer(wanted, base, dropout)


def _transformer(wanted: "Experiment", base: Model, dropout: float | None) -> Spec[Any]:
    from stillhouse.students.backbone import layer_count
    from stillhouse.students.transformer import TransformerStudent, select_layers

    total = layer_count(base)
    listed = 0 if isinstance(wanted.layers, str) else len(wanted.layers)
    layers = select_layers(wanted.layers, total, wanted.keep or listed or max(1, total // 2))
    return spec(TransformerStudent, base=base, layers=layers, dropout=dropout, seed=wanted.seed)
