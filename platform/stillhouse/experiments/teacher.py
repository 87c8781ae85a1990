"""The choice of a teacher."""

from dataclasses import dataclass, replace

from stillhouse.core.errors import require
from stillhouse.plan.data import Model
from stillhouse.teachers.weights import resolve_model

POOLINGS = ("cls", "mean", "max", "last", "pooler")


@dataclass(frozen=True)
class PromptChoice:
    """What the teacher is given before every text, by role.

    Attributes:
        query: Text before every query and claim; ``@NAME`` takes the prompt that the model has of that name,
            nothing at all (None) the model's own prompt ``query``. An empty text gives no prompt.
        document: The same of passages and documents; the model's own is ``document``, ``passage`` or
            ``corpus``.
        plain: The same of texts without a role; the model's own is what its ``default_prompt_name`` names.
    """

    query: str | None = None
    document: str | None = None
    plain: str | None = None


@dataclass(frozen=True)
class TeacherChoice:
    """The large model that is distilled.

    Attributes:
        name: Name or path of the teacher.
        pooling: How it makes one vector of its states: ``cls``, ``mean``, ``max``, ``last`` (token) or
            ``pooler`` (BERT's layer after [CLS], as SimCSE's teachers). Empty takes what its folder states;
            a folder without ``modules.json`` states nothing, and the mean is assumed.
        normalize: Whether its vectors have length 1. None takes what its folder states.
        dimension: Number of dimensions that are kept of its vectors, the first ones, for a teacher that was
            trained for that (Matryoshka); they get length 1 again if the whole vectors have it. 0 keeps all.
        max_length: Tokens per text that the teacher reads, prompt included; 0 takes ``max_length``, and then
            what its folder states.
        prompts: What it is given before every text, by role.
    """

    name: str = "all-MiniLM-L6-v2"
    pooling: str = ""
    normalize: bool | None = None
    dimension: int = 0
    max_length: int = 0
    prompts: PromptChoice = PromptChoice()

    def __post_init__(self) -> None:
        """Check the pooling and the ranges."""
        require(self.pooling in ("", *POOLINGS), f"teacher.pooling in {POOLINGS}", pooling=self.pooling)
        require(self.dimension >= 0, "teacher.dimension >= 0", dimension=self.dimension)
        require(
            self.max_length == 0 or self.max_length >= 3,
            "teacher.max_length >= 3, or 0",
            max_length=self.max_length,
        )

    def model(self) -> Model:
        """Find the teacher's folder, and set its head and its prompts.

        Raises:
            BadInput: No such model, or it has no such head, dimension or prompt.
        """
        from stillhouse.students.head import truncated, with_head
        from stillhouse.teachers.prompts import chosen_prompts

        model = with_head(resolve_model(self.name), self.pooling, self.normalize)
        return replace(truncated(model, self.dimension), prompts=chosen_prompts(model, vars(self.prompts)))

    def remarks(self, model: Model) -> list[str]:
        """Say what is assumed of the teacher's head, or what it contradicts, and which prompts it has.

        Args:
            model: What `model` gives.
        """
        from stillhouse.students.head import head_remark
        from stillhouse.teachers.prompts import prompts_remark

        given = {"pooling_given": bool(self.pooling), "normalize_given": self.normalize is not None}
        return [line for line in (head_remark(model, **given), prompts_remark(model)) if line]
