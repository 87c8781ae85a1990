"""Values of the data: models, texts, tokens, teacher stores, examples and retrieval collections.

Nothing here reads data: each value names an artifact, a folder of the workspace.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, cast

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, fingerprint
from stillhouse.core.redaction import names_secret
from stillhouse.core.roles import DOCUMENT, NO_PROMPTS, PLAIN, QUERY, Prompts
from stillhouse.values.mining import Mining

if TYPE_CHECKING:
    from stillhouse.values.stage import DevSuite, Stage


COLUMN_ROLES = {
    "query": QUERY,
    "passage": DOCUMENT,
    "negatives": DOCUMENT,
    "claim": QUERY,
    "documents": DOCUMENT,
}
"""Roles of the columns of examples, by name; texts of any other column are plain."""


def column_role(column: str) -> str:
    """The role that a column's name says; plain for any other name."""
    return COLUMN_ROLES.get(column, PLAIN)


class Named:
    """Gives a frozen value a fingerprint, computed from its fields."""

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that identify what the value means."""
        return fingerprint(self)


class Made(Named):
    """A value that names a folder of the workspace, which is made where it is asked for."""

    kind: ClassVar[str]

    @property
    def is_made(self) -> bool:
        """True if the folder is made, rather than written when the data is read, or not needed at all."""
        return True


class Teacher(Named):
    """A published teacher, or several as an `Ensemble`: the contract that whoever learns from one relies on.

    Attributes:
        maker: Its file in `teachers.kinds`, which makes its vectors.
        imported: Whether its vectors are read from files, which are where the driver is.
        asked: Whether its vectors are asked of an endpoint, which may cost money.
        name: What it is called; for display.
        normalize: Whether its vectors have length 1; None leaves that to the folder of its `checkpoint`.
        prompts: Prompts by role; None leaves them to that folder.
        kept: Number of dimensions that are kept of vectors from elsewhere, the first ones; 0 keeps all.
        width: Number of dimensions of those vectors; 0 if it is not known yet.
        weights: Weight of each of several teachers; their sum is 1.
        lengths: Tokens per text that each of several teachers reads.
        given: The weights of several as the experiment gives them.
    """

    maker: ClassVar[str]
    imported: ClassVar[bool] = False
    asked: ClassVar[bool] = False
    weights: tuple[float, ...] = ()
    lengths: tuple[int, ...] = ()
    given: tuple[float, ...] = ()
    name: str
    normalize: bool | None
    prompts: Prompts | None = NO_PROMPTS
    kept: int = 0
    width: int = 0

    @property
    def dimension(self) -> int:
        """Number of dimensions of a vector (E); 0 leaves that to its `checkpoint`, or is unknown."""
        return self.kept or self.width

    @property
    def members(self) -> "tuple[Teacher, ...]":
        """The single teachers that it consists of."""
        return (self,)

    @property
    def checkpoint(self) -> "Model | None":
        """The published model that runs here, and that a student may start from; None if there is none."""
        return None

    @property
    def models(self) -> "tuple[Model, ...]":
        """The models that are run to embed as this teacher."""
        return tuple(member.checkpoint for member in self.members if member.checkpoint)

    @property
    def lead(self) -> "Teacher":
        """The member that a student starts from, and whose length counts where nothing else is stated."""
        return next((member for member in self.members if member.checkpoint), self.members[0])

    @property
    def title(self) -> str:
        """Its name, or that of its folder."""
        return self.name

    @property
    def identity(self) -> dict[str, str]:
        """Its title and what identifies it, for the manifests of its stores."""
        known = {key: getattr(self, key, "") for key in ("sha256", "url", "model")}
        return {"name": self.title, **{key: value for key, value in known.items() if value}}

    def read_as(self, role: str) -> "Teacher":
        """The teacher that a store of texts of a role names."""
        return self

    def having(self, **changes: Any) -> "Teacher":
        """Several teachers with other weights or lengths; a single one as it is."""
        several: Any = self
        return replace(several, **changes) if self.weights else self


@dataclass(frozen=True)
class Model(Teacher):
    """The published weights of a teacher, or of the model that a student starts from.

    Attributes:
        name: Name as the user gave it; for display, not part of the identity.
        sha256: Hash over the weights, the configuration and the tokenizer.
        path: The local folder; not part of the identity.
        pooling: Pooling instead of that of the folder's modules; empty takes theirs. See `students.head`.
        normalize: Whether vectors have length 1, instead of what the folder's modules say; None takes theirs.
        dimension: Number of dimensions that are kept of a vector, the first ones; 0 keeps all.
        prompts: Prompts by role instead of those of the folder; None takes the folder's. Not part of the
            identity: a `Store` names the one prompt that its vectors have.
    """

    sha256: str
    name: str = field(default="", metadata={"identity": False})
    path: str = field(default="", metadata={"identity": False})
    pooling: str = field(default="", metadata={"identity": "unless_default"})
    normalize: bool | None = field(default=None, metadata={"identity": "unless_default"})
    dimension: int = field(default=0, metadata={"identity": "unless_default"})
    prompts: Prompts | None = field(default=None, metadata={"identity": False})

    maker: ClassVar[str] = "model"

    @property
    def checkpoint(self) -> "Model":
        """The model."""
        return self

    @property
    def title(self) -> str:
        """Its name, or that of its folder."""
        return self.name or PurePath(self.path).name

    def bare(self) -> "Model":
        """The model as something to start from: without what it does to texts before and vectors after."""
        return replace(self, dimension=0, prompts=None)


@dataclass(frozen=True)
class VectorFiles(Teacher):
    """Files with texts and their vectors, from elsewhere: a teacher that need not be run.

    Attributes:
        sha256: Hash over the contents of the files, sorted by name.
        columns: Names of the columns of the texts, of the vectors and of the roles; the last is empty where
            the files have none.
        normalize: Whether its vectors have length 1.
        rescaled: Whether vectors are divided by their length when they are imported.
        kept: Number of dimensions that are kept of a vector, the first ones; 0 keeps all.
        role: Role of the texts, where the files have roles; empty for plain texts.
        incomplete: Whether texts without a vector are left out; otherwise they are refused.
        width: Number of dimensions in the files; not part of the identity.
        name: What the vectors are called; for display, not part of the identity.
        source: The file, folder or glob; not part of the identity.
    """

    sha256: str
    columns: tuple[str, str, str]
    normalize: bool
    rescaled: bool = False
    kept: int = 0
    role: str = ""
    incomplete: bool = False
    width: int = field(default=0, metadata={"identity": False})
    name: str = field(default="", metadata={"identity": False})
    source: str = field(default="", metadata={"identity": False})
    maker: ClassVar[str] = "files"
    imported: ClassVar[bool] = True

    def read_as(self, role: str) -> "VectorFiles":
        """These files for a role; one store for all roles where they say nothing of roles."""
        return replace(self, role=role if self.columns[-1] else PLAIN)


@dataclass(frozen=True)
class Requests:
    """Settings of the requests to an endpoint; none of them changes a vector.

    Attributes:
        batch: Texts per request.
        at_once: Requests under way at the same time.
        timeout: Seconds without any data after which a request counts as failed.
        attempts: How often a request is made before the run ends.
        pause: Seconds before the second attempt, doubled for every further one, up to a minute; random
            between half and one and a half times that. An endpoint that asks for a longer pause gets it.
        encoding: ``float`` or ``base64``, the form of vectors that is asked for; either is understood.
        key_variable: Environment variable with the key. Its name says that it is secret (``…_API_KEY``,
            ``…_TOKEN``), so that its value is hidden wherever text is printed or written.
        price: Price of a million tokens, to print the cost; 0 prints none.
    """

    batch: int = 64
    at_once: int = 4
    timeout: float = 60.0
    attempts: int = 8
    pause: float = 1.0
    encoding: str = "float"
    key_variable: str = "STILLHOUSE_API_KEY"
    price: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges, and that the key will be hidden."""
        for name in ("batch", "at_once", "attempts"):
            value = getattr(self, name)
            require(value >= 1, f"teacher.requests.{name} >= 1", **{name: value})
        require(self.timeout > 0, "teacher.requests.timeout > 0", timeout=self.timeout)
        for name in ("pause", "price"):
            value = getattr(self, name)
            require(value >= 0, f"teacher.requests.{name} >= 0", **{name: value})
        require(
            self.encoding in ("float", "base64"),
            "teacher.requests.encoding in (float, base64)",
            encoding=self.encoding,
        )
        require(
            self.key_variable.isidentifier() and names_secret(self.key_variable),
            "teacher.requests.key_variable must be the name of an environment variable, one that says secret",
            remedy="Such as STILLHOUSE_API_KEY: the values of such variables are hidden in all output.",
        )


DEFAULT_REQUESTS = Requests()


@dataclass(frozen=True)
class Endpoint(Teacher):
    """A teacher behind an endpoint that speaks the OpenAI embeddings protocol.

    Attributes:
        url: Where it is, such as ``https://api.openai.com/v1``.
        model: Name of the model there. What stands behind the name cannot be seen.
        normalize: Whether its vectors have length 1.
        rescaled: Whether vectors are divided by their length.
        kept: Number of dimensions that it is asked for; 0 takes what it gives.
        body: JSON of what a request has beside the texts, for the role of the texts; empty for nothing.
        prompts: Prompts by role, which are put in front of the texts before they are sent. Not part of the
            identity: a `Store` names the one prompt that its vectors have.
        bodies: ``body`` by role; not part of the identity, since a `Store` names the one of its role.
        width: Number of dimensions of its vectors (E); not part of the identity.
        name: What it is called; for display, not part of the identity.
        requests: How it is asked; not part of the identity.
    """

    url: str
    model: str
    normalize: bool = False
    rescaled: bool = False
    kept: int = 0
    body: str = field(default="", metadata={"identity": "unless_default"})
    prompts: Prompts = field(default=NO_PROMPTS, metadata={"identity": False})
    bodies: Prompts = field(default=NO_PROMPTS, metadata={"identity": False})
    width: int = field(default=0, metadata={"identity": False})
    name: str = field(default="", metadata={"identity": False})
    requests: Requests = field(default=DEFAULT_REQUESTS, metadata={"identity": False})
    maker: ClassVar[str] = "endpoint"
    asked: ClassVar[bool] = True

    def read_as(self, role: str) -> "Endpoint":
        """The endpoint with what a request for a role has beside the texts."""
        return replace(self, body=self.bodies.of(role))


def shares_of(weights: Sequence[float]) -> tuple[float, ...]:
    """Divide weights by their sum.

    Raises:
        BadInput: A weight is negative or not finite, or all are 0.
    """
    good = all(math.isfinite(weight) and weight >= 0 for weight in weights) and sum(weights) > 0
    require(
        good,
        "the weights of the teachers must be finite numbers of at least 0, at least one of them above 0",
        weights=list(weights),
    )
    total = math.fsum(weights)
    return tuple(float(weight) / total for weight in weights)


@dataclass(frozen=True)
class Ensemble(Teacher):
    """Several teachers that teach as one, by the weighted concatenation of their vectors.

    Every vector t_i of teacher i is divided by its length, and the target is t = [√w_1 t_1, …, √w_m t_m] with
    Σ w_i = 1. It has length 1, and the cosine of two texts is the weighted mean of the teachers' cosines,
    cos(t, t') = Σ w_i cos(t_i, t'_i). Dimensions, tokenizers and prompts of the teachers may differ.

    A linear map M from the student's space onto t is a projection per teacher, since its rows are blocks
    M_i = √w_i P_i: ‖M s − t‖² = Σ w_i ‖P_i s − t_i‖². So one learnt layer is the weighted sum of a regression
    per teacher, and no loss has several.

    Attributes:
        members: The teachers; at least two.
        weights: w_i, whose sum is 1.
        lengths: Tokens per text that each reads; 0 where that is not stated, or the teacher is not run. Not
            part of the identity: a `Store` names the length that its vectors have.
        given: The weights as the experiment gives them, before they were divided by their sum; not part of
            the identity.
    """

    members: tuple[Teacher, ...] = ()
    weights: tuple[float, ...] = ()
    lengths: tuple[int, ...] = field(default=(), metadata={"identity": False})
    given: tuple[float, ...] = field(default=(), metadata={"identity": False})

    normalize = True

    def __post_init__(self) -> None:
        """Check that every teacher has a weight."""
        assert len(self.members) == len(self.weights) >= 2, "an ensemble has several teachers"

    @property
    def name(self) -> str:  # type: ignore[override]
        """The names with their weights, such as ``all-MiniLM-L6-v2 (0.7) + bge-base-en-v1.5 (0.3)``."""
        return weighted_names([member.name for member in self.members], self.weights)

    @property
    def dimension(self) -> int:
        """Number of dimensions of a target (E) as far as the members state theirs; 0 if one does not."""
        each = [member.dimension for member in self.members]
        return sum(each) if all(each) else 0


def weighted_names(names: Sequence[str], weights: Sequence[float]) -> str:
    """Names with their weights in one line."""
    return " + ".join(f"{name} ({weight:.3g})" for name, weight in zip(names, weights, strict=True))


def teachers_in(value: object) -> Iterator[Teacher]:
    """The teachers and checkpoints that a spec names, those of nested specs among them."""
    if isinstance(value, Teacher):
        yield value
    elif isinstance(value, Spec):
        for each in value.kwargs.values():
            yield from teachers_in(each)


RUNTIMES = TORCH, COMPILE, OPENVINO, ONNX = ("torch", "compile", "openvino", "onnx")
"""What can compute the vectors of a store: PyTorch, torch.compile, OpenVINO, ONNX Runtime."""
AUTO = "auto"
"""The runtime of a teacher that leaves the choice to the machine."""


@dataclass(frozen=True)
class TextTable(Named):
    """Cleaned, deduplicated texts in shards of a fixed number of rows; a row id never changes its text.

    On disk: ``part-00000.parquet``, … (one column, ``text``) and a manifest with ``rows``, ``input_rows``,
    ``duplicates``, ``quarantined`` and ``shards`` (name, rows, sha256).
    """

    kind: ClassVar[str] = "corpora"
    sha256: str
    label: str = field(default="texts", metadata={"identity": False})


@dataclass(frozen=True)
class TokenTable(Made):
    """The token ids of a `TextTable` under one tokenizer, special tokens included.

    On disk: ``ids.npy`` (int32, all rows end to end), ``offsets.npy`` (int64, rows + 1) and a manifest.

    Attributes:
        texts: The rows.
        tokenizer: The model whose tokenizer is used.
        max_length: Tokens, special ones included; longer texts are cut.
        prompt: Prefix of every text.
        prompts: Prefixes of consecutive runs of texts instead, each with its number of rows.
    """

    kind: ClassVar[str] = "tokens"
    version: ClassVar[int] = 1
    texts: TextTable
    tokenizer: Model
    max_length: int
    prompt: str = field(default="", metadata={"identity": "unless_default"})
    prompts: "Runs" = field(default=(), metadata={"identity": "unless_default"})

    @property
    def label(self) -> str:
        """The texts' label."""
        return self.texts.label


class TeacherVectors(Named):
    """A teacher's vectors of texts, from whatever stores they are read.

    Attributes:
        members: The stores of several teachers, with their ``weights``.
        parts: The stores of several tables, with the number of rows and the role of each in ``roles``.
    """

    texts: TextTable
    members: "tuple[Store, ...]" = ()
    parts: "tuple[TableStore, ...]" = ()
    weights: tuple[float, ...] = ()
    roles: "Runs" = ()

    @property
    def label(self) -> str:
        """The texts' label."""
        return self.texts.label

    @property
    def stores(self) -> "tuple[Store, ...]":
        """The stores that are to be built to read them."""
        own = self.members or cast("tuple[Store]", (self,))
        return tuple(store for part in self.parts for store in part.stores) or own


@dataclass(frozen=True)
class Store(TeacherVectors, Made):
    """A teacher's vectors of every row of a text table.

    On disk: one Arrow IPC file per shard of the table (``row`` int64, ``embedding`` fixed-size list), a
    quarantine file, and a manifest with ``rows``, ``dim``, ``shards`` (name, rows, sha256).

    Attributes:
        texts: The rows.
        teacher: Published weights, a stage whose student teaches, files of vectors, or an endpoint.
        max_length: Tokens, special ones included; longer texts are cut. Where no model is run here, it and
            the precision of the forward pass have their defaults.
        prompt: Prefix of every text.
        compute: ``float32`` or ``bfloat16``, the precision of the forward pass.
        dtype: ``float32`` or ``float16``, the precision on disk.
        runtime: One of `RUNTIMES`, what computes the vectors. A store of PyTorch has the fingerprint that it
            had before there were others.
    """

    kind: ClassVar[str] = "stores"
    version: ClassVar[int] = 2
    texts: TextTable
    teacher: "Teacher | Stage"
    max_length: int = 128
    prompt: str = ""
    compute: str = "float32"
    dtype: str = "float16"
    runtime: str = field(default=TORCH, metadata={"identity": "unless_default"})

    def __post_init__(self) -> None:
        """Check the precisions, the length and the runtime."""
        require(
            self.compute in ("float32", "bfloat16"), "compute in (float32, bfloat16)", compute=self.compute
        )
        require(self.dtype in ("float32", "float16"), "dtype in (float32, float16)", dtype=self.dtype)
        require(self.max_length >= 3, "max_length >= 3", max_length=self.max_length)
        require(self.runtime in RUNTIMES, f"runtime in {RUNTIMES}", runtime=self.runtime)

    @property
    def model(self) -> Model:
        """The published model that is run for it."""
        assert self.teacher.checkpoint is not None, "only a model is run"
        return self.teacher.checkpoint


@dataclass(frozen=True)
class StoreEnsemble(TeacherVectors):
    """The stores of several teachers over one text table, read as one; see `Ensemble`. It has no folder.

    There is one store per teacher, with a weight; their sum is 1.
    """

    texts: TextTable
    members: tuple[Store, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check that every store is of these texts and has a weight."""
        assert len(self.members) == len(self.weights) >= 2, "an ensemble has several teachers"
        assert all(member.texts == self.texts for member in self.members), "one table, several teachers"

    @property
    def teacher(self) -> Ensemble:
        """The teachers with their weights."""
        teachers = [member.teacher for member in self.members]
        return Ensemble(tuple(each for each in teachers if isinstance(each, Teacher)), self.weights)


TableStore = Store | StoreEnsemble
"""A teacher's vectors of one text table: those of one teacher, or of several."""

Runs = tuple[tuple[int, str], ...]
"""What consecutive runs of rows of a table have, such as their role: number of rows, then the role."""


@dataclass(frozen=True)
class StoreMix(TeacherVectors):
    """The stores of several texts tables, read as one: the rows of the first, then those of the second, ….

    Every part is a store of its own, with the prompt of its role; there is at least one, and all are of one
    teacher. Its ``texts`` are those of all parts, in that order. It has no folder.
    """

    texts: TextTable
    parts: tuple[TableStore, ...]
    roles: Runs

    def __post_init__(self) -> None:
        """Check that every part has a role."""
        assert self.parts and len(self.parts) == len(self.roles)

    @property
    def teacher(self) -> "Teacher | Stage":
        """The teacher of all parts."""
        return self.parts[0].teacher


AnyStore = TableStore | StoreMix
"""A teacher's vectors of texts, from whatever stores they are read."""


@dataclass(frozen=True)
class AllRows:
    """Origin: every row of the one column's table, in order. Needs no folder."""


@dataclass(frozen=True)
class Given:
    """Origin: rows that came with the data, written when it was read; the hash is over the column files."""

    sha256: str


@dataclass(frozen=True)
class Mined:
    """Origin: pairs with hard negatives, the passages nearest to the query by the teacher's vectors.

    Attributes:
        pairs: Examples with the columns ``query`` and ``passage``.
        queries: Teacher's vectors of the queries.
        passages: Teacher's vectors of the passages.
        negatives: Number of hard negatives per row (K).
        mining: By which rule they are mined.
    """

    version: ClassVar[int] = 5
    pairs: "Examples"
    queries: TableStore
    passages: TableStore
    negatives: int = 8
    mining: Mining = field(default_factory=Mining)

    def __post_init__(self) -> None:
        """Check the rule."""
        require(self.negatives >= 1, "negatives >= 1", negatives=self.negatives)
        self.mining.check(self.negatives)


@dataclass(frozen=True)
class Scored:
    """Origin: other examples with a teacher's scores of every pair as the value ``scores``, (N, C).

    Attributes:
        rows: Examples with the columns ``claim``, (N,), and ``documents``, (N, C); or with ``query`` and
            ``passage``, (N,), and ``negatives``, (N, K), whose candidates are the passage and then those.
        teacher: A published cross-encoder, or a stage whose student reads both texts of a pair.
        max_length: Maximum tokens per pair for a published one; a stage has its own.
    """

    version: ClassVar[int] = 1
    rows: "Examples"
    teacher: "Model | Stage"
    max_length: int = 0


@dataclass(frozen=True)
class Sampled:
    """Origin: a sample of other examples' rows; a smaller one is a subset of a larger one. Needs no folder.

    Attributes:
        rows: The examples to sample from, with the same columns and values.
        fraction: Fraction of the rows; with labels, of the rows of every ``label``, at least one each.
        seed: Seed for row sampling.
    """

    rows: "Examples"
    fraction: float
    seed: int = 0


@dataclass(frozen=True)
class FewerNegatives:
    """Origin: other examples with the first of their hard negatives, and their scores. Needs no folder.

    Attributes:
        rows: Examples with the columns ``query``, ``passage`` and ``negatives``, (N, K), and perhaps the
            value ``scores``, (N, 1 + K), the passage's first.
        negatives: Number of hard negatives that are kept per row, at most K.
    """

    rows: "Examples"
    negatives: int


@dataclass(frozen=True)
class Recorded:
    """Origin: the rows of other examples, with the logits that a trained stage gives each as a further value.

    They have the columns and values of ``rows``. The stage's objective is a `LogitObjective`.
    """

    rows: "Examples"
    stage: "Stage"


@dataclass(frozen=True)
class Examples(Made):
    """Rows of integer ids into text tables, and further values of each row.

    On disk: ``<column>.npy``, int64, (N,) or (N, K); ``<value>.npy``, int64 (labels) or float32 (scores,
    logits), (N,) or (N, C); and a manifest with ``rows``.

    Attributes:
        columns: Column name to the table that its ids point into.
        origin: Where the rows come from.
        values: Names of the values; they are part of the rows that came with the data.
        text_role: Role of the column ``text``; empty for plain texts. The names of other columns say theirs.
        text_roles: Roles of consecutive runs of rows of the table of ``text`` instead, where it has several
            sources.
    """

    kind: ClassVar[str] = "examples"
    columns: Mapping[str, TextTable]
    origin: AllRows | Given | Mined | Sampled | FewerNegatives | Recorded | Scored
    label: str = field(default="examples", metadata={"identity": False})
    values: tuple[str, ...] = field(default=(), metadata={"identity": "unless_default"})
    text_role: str = field(default=PLAIN, metadata={"identity": "unless_default"})
    text_roles: Runs = field(default=(), metadata={"identity": "unless_default"})

    @property
    def is_made(self) -> bool:
        """See `Made.is_made`."""
        return isinstance(self.origin, Mined | Recorded | Scored)

    def roles(self, column: str) -> Runs:
        """The roles of consecutive runs of rows of a column's table; empty where all have one role."""
        return self.text_roles if column == "text" else ()

    def role(self, column: str) -> str:
        """The role of a column: what its name says, or `text_role`; plain for any other."""
        return self.text_role if column == "text" else column_role(column)

    def __post_init__(self) -> None:
        """Refuse a value that has the name of a column."""
        both = sorted(set(self.values) & set(self.columns))
        require(not both, "values and columns of examples have names of their own", twice=both)
        assert not (self.values and isinstance(self.origin, AllRows)), "values are given or recorded"

    def sources(self) -> Iterator["Examples"]:
        """The examples that these are made of, the first ones first, and these."""
        if isinstance(self.origin, Sampled | FewerNegatives | Recorded | Scored):
            yield from self.origin.rows.sources()
        yield self

    def teachers(self) -> Iterator["Teacher | Stage"]:
        """Return the teachers of the stores used for mining, and the models whose outputs are recorded."""
        for origin in (examples.origin for examples in self.sources()):
            if isinstance(origin, Mined):
                yield from (origin.queries.teacher, origin.passages.teacher)
            elif isinstance(origin, Recorded | Scored):
                yield origin.stage if isinstance(origin, Recorded) else origin.teacher


def sample(examples: Examples, fraction: float) -> Examples:
    """A share of some rows; a smaller share is part of a larger one."""
    return replace(examples, origin=Sampled(examples, fraction))


def fewer_negatives(examples: Examples, negatives: int) -> Examples:
    """Some rows with the first of their hard negatives, and the scores of those."""
    return replace(examples, origin=FewerNegatives(examples, negatives))


@dataclass(frozen=True)
class RankingTask:
    """Claims with C candidate documents each.

    Attributes:
        examples: Columns ``claim``, (N,), and ``documents``, (N, C); value ``gold``, (N, C): 1 for a relevant
            document. A teacher that is trained learns from all of them.
        dev: The suite that selects; its evaluators ask for scores of pairs.
        rows: Claims that a student learns from, N times the fraction.
        fraction: The share of the claims that a student learns from.
        cross_encoder: A published teacher; None where there is none.
        unlabelled: The same claims and further ones without a relevant document, for a student that follows
            a teacher; None where there are none.
    """

    examples: Examples
    dev: "DevSuite"
    rows: int = 0
    fraction: float = 1.0
    cross_encoder: Model | None = None
    unlabelled: Examples | None = None

    def share(self, fraction: float) -> "RankingTask":
        """A share of the claims for the student; a teacher that is trained, or scores them, has them all."""
        return replace(self, fraction=fraction, rows=max(1, round(fraction * self.rows)))


@dataclass(frozen=True)
class Collection(Named):
    """A retrieval test collection: queries, passages, and which passage answers which query.

    On disk: ``qrels.npy``, int64 (N, 3): query row, passage row, gain; for collections of users ``names.npy``
    and ``own.npy`` (see `Judgements`); and a manifest.
    """

    kind: ClassVar[str] = "collections"
    queries: TextTable
    passages: TextTable
    sha256: str
    label: str = field(default="collection", metadata={"identity": False})
