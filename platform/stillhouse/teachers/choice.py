"""The choice of a teacher."""

import json
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stillhouse.core.errors import require
from stillhouse.core.json_text import parse_json
from stillhouse.core.modules import named
from stillhouse.core.roles import Prompts
from stillhouse.core.type_casts import check_types
from stillhouse.values.data import AUTO, DEFAULT_REQUESTS, RUNTIMES, Requests, shares_of

if TYPE_CHECKING:
    from stillhouse.teachers.kinds import Finder

DEFAULT = "all-MiniLM-L6-v2"
POOLINGS = ("cls", "mean", "max", "last", "pooler")


@dataclass(frozen=True)
class PromptChoice:
    """Prompts of the teacher, by role.

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

    def __post_init__(self) -> None:
        """Check the types."""
        check_types(self, "teacher.prompts")

    def given(self) -> dict[str, str]:
        """The prompts that are set, by role."""
        return {role: prompt for role, prompt in vars(self).items() if prompt is not None}


@dataclass(frozen=True)
class BodyChoice:
    """Fields of every request to an endpoint beside the texts, by role; they may name another ``model``.

    Attributes:
        query: A mapping such as ``{"input_type": "query"}``, for queries and claims.
        document: The same for passages and documents.
        plain: The same for texts without a role.
    """

    query: str | dict[str, Any] = ""
    document: str | dict[str, Any] = ""
    plain: str | dict[str, Any] = ""

    def __post_init__(self) -> None:
        """Check the mappings, and keep each as JSON."""
        for role, given in vars(self).items():
            try:
                found = parse_json(given) if isinstance(given, str) and given else given
            except ValueError:
                found = None
            rule = f"teacher.body.{role} must be a mapping"
            remedy = 'Such as {"input_type": "query"}.'
            require(given == "" or isinstance(found, dict), rule, remedy=remedy, **{role: given})
            ours = sorted({"input", "dimensions", "encoding_format"} & set(found or ()))
            rule = f"teacher.body.{role} must leave out what requests have anyway"
            require(not ours, rule, given=ours)
            kept = json.dumps(found, sort_keys=True) if found else ""
            object.__setattr__(self, role, kept)

    def by_role(self) -> Prompts:
        """The JSON by role."""
        return Prompts(**{role: str(body) for role, body in vars(self).items()})


@dataclass(frozen=True)
class TeacherChoice:
    """The large model that is distilled, or several of them.

    Attributes:
        name: Name or path of the teacher.
        pooling: How it makes one vector of its states: ``cls``, ``mean``, ``max``, ``last`` (token) or
            ``pooler`` (BERT's layer after [CLS], as SimCSE's teachers). Empty takes what its folder states;
            a folder without ``modules.json`` states nothing, and the mean is assumed.
        normalize: Whether its vectors have length 1. None takes what its folder states.
        dimension: Number of dimensions that are kept of its vectors, the first ones, for a teacher that was
            trained for that (Matryoshka); they get length 1 again if the whole vectors have it. 0 takes what
            its folder states (``truncate_dim``), or all.
        max_length: Tokens per text that the teacher reads, prompt included; 0 takes ``max_length``, and then
            what its folder states.
        prompts: What it is given before every text, by role.
        runtime: What computes its vectors: ``torch``, ``compile``, ``openvino`` or ``onnx``; ``auto`` takes
            vectors that exist as they are; otherwise ``openvino`` for a large table in bfloat16 on a CPU, if
            it is installed and agrees with PyTorch, and ``torch`` for all else.
        vectors: File, folder or glob of Parquet or Arrow files with texts and their vectors, instead of a
            model that is run. ``name`` then only says what they are called.
        text_column: Column of the texts in the files of vectors; empty takes ``text``, ``sentence``,
            ``content``, or the only column of texts.
        vector_column: Column of the vectors; empty takes ``embedding``, ``vector``, ``vectors``,
            ``embeddings``, or the only column of lists of floats.
        role_column: Column that says of which role each text is: ``query``, ``document``, or empty for any;
            empty takes ``role``, where there is one.
        incomplete: Whether texts without a vector are left out; otherwise they are refused.
        endpoint: URL of an endpoint that speaks the OpenAI embeddings protocol, such as
            ``https://api.openai.com/v1``, instead of a model that is run. ``dimension`` is asked of it.
        model: Name of the model behind the endpoint.
        body: What every request to the endpoint has beside the texts, by role, such as ``input_type``.
        requests: How the endpoint is asked.
        members: Several teachers instead of one, each a mapping with the fields above; ``teacher:`` may be
            that list itself. Their vectors are joined, so that a cosine is the weighted mean of the teachers'
            cosines. Other fields then stand with each teacher.
        kind: Kind of teacher, a file of ``teachers/kinds``; empty takes ``endpoint`` or ``files`` by their
            fields, otherwise ``model``.
        weight: Weight of this teacher among several, relative to the others'; a search space may name it, as
            ``teacher_weight_2`` for the second one.
    """

    name: str = DEFAULT
    pooling: str = ""
    normalize: bool | None = None
    dimension: int = 0
    max_length: int = 0
    prompts: PromptChoice = PromptChoice()
    runtime: str = AUTO
    vectors: str = ""
    text_column: str = ""
    vector_column: str = ""
    role_column: str = ""
    incomplete: bool = False
    endpoint: str = ""
    model: str = ""
    body: BodyChoice = BodyChoice()
    requests: Requests = DEFAULT_REQUESTS
    members: "tuple[TeacherChoice, ...]" = ()
    kind: str = field(default="", metadata={"identity": "unless_default"})
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Check the pooling and the ranges, and that fields go together; a list of one is that teacher."""
        check_types(self, "teacher")
        object.__setattr__(self, "members", tuple(self.members))
        if self.members:
            self._check_members()
        if len(self.members) == 1:
            (only,) = self.members
            for each in fields(self):
                object.__setattr__(self, each.name, getattr(only, each.name))
            object.__setattr__(self, "weight", 1.0)
        require(self.pooling in ("", *POOLINGS), f"teacher.pooling in {POOLINGS}", pooling=self.pooling)
        require(self.dimension >= 0, "teacher.dimension >= 0", dimension=self.dimension)
        require(
            self.max_length == 0 or self.max_length >= 3,
            "teacher.max_length >= 3, or 0",
            max_length=self.max_length,
        )
        runtimes = (AUTO, *RUNTIMES)
        require(self.runtime in runtimes, f"teacher.runtime in {runtimes}", runtime=self.runtime)
        self._check_together()
        if self.endpoint:
            self._check_endpoint()

    @property
    def is_model(self) -> bool:
        """True if the teacher is one model, not files of vectors, an endpoint or several teachers."""
        return self.kind in ("", "model") and not (self.vectors or self.endpoint or self.members)

    @property
    def each(self) -> "tuple[TeacherChoice, ...]":
        """The single teachers."""
        return self.members or (self,)

    def _check_members(self) -> None:
        """Refuse fields beside a list of teachers, a list in a list, and weights that cannot be used."""
        given = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name != "members" and getattr(self, each.name) != each.default
        }
        require(
            not given,
            "a list of teachers must come without further fields of the teacher",
            remedy="Give them in the entry of the teacher that they belong to.",
            **given,
        )
        require(
            not any(member.members for member in self.members),
            "a teacher of a list must be a single teacher",
        )
        shares_of([member.weight for member in self.members])

    def _check_together(self) -> None:
        """Refuse fields of one kind of teacher beside another kind."""
        require(
            not (self.vectors and self.endpoint),
            "teacher.vectors and teacher.endpoint must not be given together",
            vectors=self.vectors,
            endpoint=self.endpoint,
        )
        kind = "vectors" if self.vectors else "endpoint" if self.endpoint else ""
        if kind:
            prompts = self.prompts.given() if self.vectors else {}
            runtime = "" if self.runtime == AUTO else self.runtime
            run = {
                "pooling": self.pooling,
                "max_length": self.max_length,
                "prompts": prompts,
                "runtime": runtime,
            }
            given: dict[str, Any] = {name: value for name, value in run.items() if value}
            rule = f"teacher.{kind} must be given without what says how a model is run"
            require(not given, rule, **{kind: getattr(self, kind)}, **given)
        columns = ("text_column", "vector_column", "role_column", "incomplete")
        for own, names in (("vectors", columns), ("endpoint", ("model", "body", "requests"))):
            given = {
                name: value
                for name in names
                if (value := getattr(self, name)) and value not in (DEFAULT_REQUESTS, BodyChoice())
            }
            require(
                not given or bool(getattr(self, own)),
                f"{', '.join(f'teacher.{name}' for name in given)} must go with teacher.{own}",
                **given,
            )

    def _check_endpoint(self) -> None:
        """Refuse a URL that is none or holds a secret, and prompts that only a folder has."""
        try:
            url = urlsplit(self.endpoint)
            good = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        except ValueError:
            good = False
        require(
            good and self.endpoint.isascii() and self.endpoint.isprintable() and " " not in self.endpoint,
            "teacher.endpoint must be a URL such as https://api.openai.com/v1",
        )
        require(
            not (url.username or url.password or url.query or url.fragment),
            "teacher.endpoint must be a URL without a user, a password or parameters",
            remedy=f"Give a key in the environment variable {self.requests.key_variable}.",
        )
        require(bool(self.model), "teacher.model must be given with teacher.endpoint", endpoint=self.endpoint)
        named = {role: prompt for role, prompt in self.prompts.given().items() if prompt.startswith("@")}
        require(
            not named,
            "teacher.prompts of an endpoint must be texts: it has no prompts with names",
            **named,
        )

    @property
    def own_name(self) -> str:
        """The name that is given; empty where none is."""
        return "" if self.name == DEFAULT else self.name

    @property
    def finder(self) -> "Finder":
        """What finds the teacher."""
        found: Finder = named("stillhouse.teachers.kinds:Finder")(self)
        return found
