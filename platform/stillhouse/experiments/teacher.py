"""The choice of a teacher."""

from dataclasses import dataclass

from stillhouse.core.errors import require
from stillhouse.plan.data import Model
from stillhouse.teachers.weights import resolve_model

POOLINGS = ("cls", "mean", "max", "last", "pooler")


@dataclass(frozen=True)
class TeacherChoice:
    """The large model that is distilled.

    Attributes:
        name: Name or path of the teacher.
        pooling: How it makes one vector of its states: ``cls``, ``mean``, ``max``, ``last`` (token) or
            ``pooler`` (BERT's layer after [CLS], as SimCSE's teachers). Empty takes what its folder states;
            a folder without ``modules.json`` states nothing, and the mean is assumed.
        normalize: Whether its vectors have length 1. None takes what its folder states.
    """

    name: str = "all-MiniLM-L6-v2"
    pooling: str = ""
    normalize: bool | None = None

    def __post_init__(self) -> None:
        """Check the pooling."""
        require(self.pooling in ("", *POOLINGS), f"teacher.pooling in {POOLINGS}", pooling=self.pooling)

    def model(self) -> Model:
        """Find the teacher's folder, and set its head.

        Raises:
            BadInput: No such model, or it has no such head.
        """
        from stillhouse.students.head import with_head

        return with_head(resolve_model(self.name), self.pooling, self.normalize)

    def remark(self, model: Model) -> str:
        """Say in one line what is assumed of the teacher's head, or what it contradicts; else empty.

        Args:
            model: What `model` gives.
        """
        from stillhouse.students.head import head_remark

        given = {"pooling_given": bool(self.pooling), "normalize_given": self.normalize is not None}
        return head_remark(model, **given)
