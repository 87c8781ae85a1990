"""The nouns of the data: frozen values that name models, texts, tokens, teacher stores, examples and qrels.

Nothing here reads anything: each value names an artifact, a folder of the workspace.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from stillhouse.errors import require
from stillhouse.spec import fingerprint

if TYPE_CHECKING:
    from stillhouse.plan import Stage


class Named:
    """Gives a frozen value its fingerprint; its fields decide it."""

    @property
    def fingerprint(self) -> str:
        """What the value means, in sixteen hexadecimal digits."""
        return fingerprint(self)


@dataclass(frozen=True)
class Model(Named):
    """Published weights: a teacher, or what a student starts from.

    Attributes:
        name: As the user gave it; shown, not part of the identity.
        sha256: Hash over the weights, the configuration and the tokenizer.
        path: The local folder; not part of the identity.
    """

    sha256: str
    name: str = field(default="", metadata={"identity": False})
    path: str = field(default="", metadata={"identity": False})


@dataclass(frozen=True)
class TextTable(Named):
    """Cleaned, deduplicated texts in shards of a fixed number of rows; a row id is a text for ever.

    On disk: ``part-00000.parquet``, … (one column, ``text``) and a manifest with ``rows``, ``input_rows``,
    ``duplicates``, ``quarantined`` and ``shards`` (name, rows, sha256).
    """

    kind: ClassVar[str] = "corpora"
    sha256: str
    label: str = field(default="texts", metadata={"identity": False})


@dataclass(frozen=True)
class TokenTable(Named):
    """The token ids of a `TextTable` under one tokenizer, special tokens included.

    On disk: ``ids.npy`` (int32, all rows end to end), ``offsets.npy`` (int64, rows + 1) and a manifest.
    """

    kind: ClassVar[str] = "tokens"
    version: ClassVar[int] = 1
    texts: TextTable
    tokenizer: Model
    max_length: int

    @property
    def label(self) -> str:
        """The texts' label."""
        return self.texts.label


@dataclass(frozen=True)
class Store(Named):
    """What a teacher says of every row of a text table.

    On disk: one Arrow IPC file a shard of the table (``row`` int64, ``embedding`` fixed-size list), a
    quarantine file, and a manifest with ``rows``, ``dim``, ``shards`` (name, rows, sha256).

    Attributes:
        texts: The rows.
        teacher: Published weights, or a stage whose student teaches.
        max_length: Tokens, special ones included; longer texts are cut.
        prompt: Put before every text.
        compute: ``float32`` or ``bfloat16``, the precision of the forward pass.
        dtype: ``float32`` or ``float16``, the precision on the disk.
    """

    kind: ClassVar[str] = "stores"
    version: ClassVar[int] = 1
    texts: TextTable
    teacher: "Model | Stage"
    max_length: int = 128
    prompt: str = ""
    compute: str = "float32"
    dtype: str = "float16"

    def __post_init__(self) -> None:
        """Refuse a precision that no store has."""
        require(
            self.compute in ("float32", "bfloat16"), "compute in (float32, bfloat16)", compute=self.compute
        )
        require(self.dtype in ("float32", "float16"), "dtype in (float32, float16)", dtype=self.dtype)
        require(self.max_length >= 3, "max_length >= 3", max_length=self.max_length)

    @property
    def label(self) -> str:
        """The texts' label."""
        return self.texts.label


@dataclass(frozen=True)
class AllRows:
    """Origin: every row of the one column's table, in order. Needs no folder."""


@dataclass(frozen=True)
class Given:
    """Origin: rows that came with the data, written when it was read.

    Attributes:
        sha256: Hash over the column files.
    """

    sha256: str


@dataclass(frozen=True)
class Mined:
    """Origin: pairs with hard negatives, the passages nearest to the query by the teacher's vectors.

    Attributes:
        pairs: Examples with the columns ``query`` and ``passage``.
        queries: Teacher's vectors of the queries.
        passages: Teacher's vectors of the passages.
        negatives: K, hard negatives a row.
        first: Ranks before this one are skipped (near duplicates of the positive).
        margin: A negative's cosine must stay below ``margin`` times the positive's (false negatives).
    """

    version: ClassVar[int] = 1
    pairs: "Examples"
    queries: Store
    passages: Store
    negatives: int = 8
    first: int = 1
    margin: float = 0.95

    def __post_init__(self) -> None:
        """Check the rule."""
        require(self.negatives >= 1, "negatives >= 1", negatives=self.negatives)
        require(0 < self.margin <= 1, "0 < margin <= 1", margin=self.margin)


@dataclass(frozen=True)
class Examples(Named):
    """Rows of integer ids into text tables, and what is known of each row beside its texts.

    On disk: ``<column>.npy``, int64, (N,) or (N, K); ``<value>.npy``, int64 (labels) or float32 (scores,
    logits), (N,) or (N, C); and a manifest with ``rows``.

    Attributes:
        columns: Column name to the table that its ids point into.
        origin: Where the rows come from.
        values: Names of the values; they are part of the rows that came with the data.
    """

    kind: ClassVar[str] = "examples"
    columns: Mapping[str, TextTable]
    origin: AllRows | Given | Mined
    label: str = field(default="examples", metadata={"identity": False})
    values: tuple[str, ...] = field(default=(), metadata={"identity": "unless_default"})

    def __post_init__(self) -> None:
        """Refuse a value that has the name of a column."""
        both = sorted(set(self.values) & set(self.columns))
        require(not both, "values and columns of examples have names of their own", twice=both)
        assert not self.values or isinstance(self.origin, Given), "values are given with the rows"


@dataclass(frozen=True)
class Collection(Named):
    """A retrieval test collection: queries, passages, and which passage answers which query.

    On disk: ``qrels.npy``, int64 (N, 3): query row, passage row, gain; and a manifest.
    """

    kind: ClassVar[str] = "collections"
    queries: TextTable
    passages: TextTable
    sha256: str
    label: str = field(default="collection", metadata={"identity": False})
