"""The choice of a teacher."""

from dataclasses import dataclass, replace

from stillhouse.core.errors import require
from stillhouse.plan.data import Model, Teacher, VectorFiles
from stillhouse.teachers.weights import resolve_model

DEFAULT = "all-MiniLM-L6-v2"
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
        vectors: File, folder or glob of Parquet or Arrow files with texts and their vectors, instead of a
            model that is run. ``name`` then only says what they are called.
        text_column: Column of the texts in the files of vectors; empty takes ``text``, ``sentence``,
            ``content``, or the only column of texts.
        vector_column: Column of the vectors; empty takes ``embedding``, ``vector``, ``vectors``,
            ``embeddings``, or the only column of lists of floats.
        role_column: Column that says of which role each text is: ``query``, ``document``, or empty for any;
            empty takes ``role``, where there is one.
        incomplete: Whether texts without a vector are left out; otherwise they are refused.
    """

    name: str = DEFAULT
    pooling: str = ""
    normalize: bool | None = None
    dimension: int = 0
    max_length: int = 0
    prompts: PromptChoice = PromptChoice()
    vectors: str = ""
    text_column: str = ""
    vector_column: str = ""
    role_column: str = ""
    incomplete: bool = False

    def __post_init__(self) -> None:
        """Check the pooling and the ranges, and that fields go together."""
        require(self.pooling in ("", *POOLINGS), f"teacher.pooling in {POOLINGS}", pooling=self.pooling)
        require(self.dimension >= 0, "teacher.dimension >= 0", dimension=self.dimension)
        require(
            self.max_length == 0 or self.max_length >= 3,
            "teacher.max_length >= 3, or 0",
            max_length=self.max_length,
        )
        of_model = {"pooling": self.pooling, "max_length": self.max_length, "prompts": _given(self.prompts)}
        columns = ("text_column", "vector_column", "role_column", "incomplete")
        others = of_model if self.vectors else {name: getattr(self, name) for name in columns}
        given = {name: value for name, value in others.items() if value}
        require(
            not given,
            "teacher.vectors go without what says how a model is run"
            if self.vectors
            else "teacher.vectors must be given with what says how they are read",
            **({"vectors": self.vectors} | given if self.vectors else given),
        )

    def resolve(self) -> Teacher:
        """Find the teacher: its folder, or the files of its vectors.

        Raises:
            BadInput: As of `model`; or no such files, or not of texts and vectors.
        """
        if not self.vectors:
            return self.model()
        from stillhouse.teachers.vector_files import find_vectors

        return find_vectors(
            self.vectors,
            text_column=self.text_column,
            vector_column=self.vector_column,
            role_column=self.role_column,
            normalize=self.normalize,
            dimension=self.dimension,
            incomplete=self.incomplete,
            name="" if self.name == DEFAULT else self.name,
        )

    def model(self) -> Model:
        """Find the teacher's folder, and set its head and its prompts.

        Raises:
            BadInput: No such model, or it has no such head, dimension or prompt; or only vectors are named.
        """
        require(
            not self.vectors,
            "this needs the teacher as a model",
            vectors=self.vectors,
            remedy="Leave teacher.vectors out, and name the model (teacher.name).",
        )
        from stillhouse.students.head import truncated, with_head
        from stillhouse.teachers.prompts import chosen_prompts

        model = with_head(resolve_model(self.name), self.pooling, self.normalize)
        return replace(truncated(model, self.dimension), prompts=chosen_prompts(model, vars(self.prompts)))

    def remarks(self, teacher: Teacher) -> list[str]:
        """Say what is assumed of the teacher's head, or what it contradicts, and which prompts it has.

        Args:
            teacher: What `resolve` gives.
        """
        if isinstance(teacher, VectorFiles):
            from stillhouse.teachers.vector_files import remark_of

            return [remark_of(teacher)]
        from stillhouse.students.head import head_remark
        from stillhouse.teachers.prompts import prompts_remark

        given = {"pooling_given": bool(self.pooling), "normalize_given": self.normalize is not None}
        return [line for line in (head_remark(teacher, **given), prompts_remark(teacher)) if line]


def _given(prompts: PromptChoice) -> dict[str, str]:
    """The prompts that are set, by role."""
    return {role: prompt for role, prompt in vars(prompts).items() if prompt is not None}
