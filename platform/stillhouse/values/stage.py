"""Values of a plan: what is trained, where each stage names an artifact.

Nothing here runs anything. A `Stage` reaches everything it needs (its student's first weights, examples,
stores, the stage before it), so the last stage of a method is the whole plan.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from stillhouse.core.errors import require
from stillhouse.core.identity import Spec
from stillhouse.core.notes import STAGES
from stillhouse.core.roles import Prompts, Reading
from stillhouse.values.data import AnyStore, Examples, Model, Named, Teacher, teachers_in

TEXTS_TOGETHER = 8
"""A batch by tokens has a multiple of so many texts, so that ranks and micro-batches have equal numbers."""


@dataclass(frozen=True)
class DevSuite(Named):
    """Evaluators that may select: they pick checkpoints and trials.

    Attributes:
        evaluators: Specs of `Evaluator`; building one adds ``workspace`` and ``search``.
        select: The metric that is maximised.
        held_out: Teacher's vectors of texts that are never trained on; a stage that follows the teacher on
            single texts also reports its loss on them. None reports none.
    """

    evaluators: tuple[Spec[Any], ...]
    select: str
    label: str = field(default="dev", metadata={"identity": False})
    held_out: AnyStore | None = field(default=None, metadata={"identity": "unless_default"})


@dataclass(frozen=True)
class TestSuite(Named):
    """Evaluators of the locked test split. No stage or sweep takes one; only a final report opens it."""

    __test__: ClassVar[bool] = False
    evaluators: tuple[Spec[Any], ...]
    label: str = field(default="test", metadata={"identity": False})

    @property
    def opens(self) -> str:
        """Identifies the test sets, whoever has embedded their documents."""
        bare = (
            Spec(each.target, {name: value for name, value in each.kwargs.items() if name != "documents"})
            for each in self.evaluators
        )
        return replace(self, evaluators=tuple(bare)).fingerprint


@dataclass(frozen=True)
class Optimizer:
    """Optimiser, schedule and clipping.

    Attributes:
        learning_rate: Peak learning rate.
        name: ``adamw`` or ``adam`` (the papers print Adam).
        weight_decay: Decoupled for AdamW; not applied to biases and LayerNorm.
        warmup: Fraction of the steps with linear warm-up.
        decay: ``linear`` (to 0), ``cosine`` (to 0) or ``constant``.
        clip_norm: Maximum gradient norm; 0 disables clipping.
    """

    learning_rate: float
    name: str = "adamw"
    weight_decay: float = 0.0
    warmup: float = 0.0
    decay: str = "linear"
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        require(self.learning_rate > 0, "learning_rate > 0", learning_rate=self.learning_rate)
        require(self.name in ("adamw", "adam"), "optimizer in (adamw, adam)", optimizer=self.name)
        require(
            self.decay in ("linear", "cosine", "constant"),
            "decay in (linear, cosine, constant)",
            decay=self.decay,
        )
        require(0 <= self.warmup < 1, "0 <= warmup < 1", warmup=self.warmup)
        require(self.clip_norm >= 0, "clip_norm >= 0", clip_norm=self.clip_norm)


@dataclass(frozen=True)
class Live(Named):
    """A teacher that runs while a stage trains, where states are needed that no store keeps.

    It is frozen and in evaluation mode. It reads the student's tokens, or tokens of its own where its
    tokenizer is another one or it reads texts in another way.

    Attributes:
        model: Spec of a `Student`, with the weights that it starts from.
        start_from: The stage whose student it is; None leaves the weights of ``model``.
        reading: Its own prompts and maximum length; None where they are the student's.
    """

    model: Spec[Any]
    start_from: "Stage | None" = None
    reading: Reading | None = field(default=None, metadata={"identity": "unless_default"})


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Settings of the training loop: its batches, and the weights that it keeps.

    Users state it in a budget, a `Setting` passes it on, and a `Stage` has it.

    Attributes:
        accumulate: Micro-batches per optimiser step. Losses that compare the texts of a batch then compare
            those of a micro-batch.
        average: Decay per optimiser step of the moving average of the weights, such as 0.99: the average is
            measured, kept and exported instead of the weights; 0 keeps the weights themselves. After step t
            it is at most (1 + t) / (10 + t).
        soup: Number of best evaluated checkpoints of a stage whose weights are averaged at its end. The mean
            is measured on dev, and kept if it is better than the best of them; 0 makes none.
        batch_tokens: Tokens per optimiser step over all ranks, padding included, instead of a number of
            texts; 0 counts texts. For losses in which each text counts by itself, as those of ``mse`` and
            ``leaf``.
        length_window: Consecutive texts that are sorted by length and cut into batches, which are then
            shuffled; 0 takes texts as they come. For the same losses.
        shard_window: Shards of the teacher's vectors that are read together, for a store that is larger than
            a node's disk: an epoch goes through the shards in a random order, that many at a time, and mixes
            their texts. A node with a remote then holds at most twice as many shards instead of the store. 0
            mixes all texts, and every node holds the store.
        least_squares: Number of texts from which the layer that a student keeps (W_out of ``leaf``, or
            ``keep_projection``) starts as the least-squares map from its vectors to the teacher's; 0 starts
            it as the identity, or at random where the dimensions differ.
    """

    accumulate: int = 1
    average: float = field(default=0.0, metadata={"identity": "unless_default"})
    soup: int = field(default=0, metadata={"identity": "unless_default"})
    batch_tokens: int = field(default=0, metadata={"identity": "unless_default"})
    length_window: int = field(default=0, metadata={"identity": "unless_default"})
    shard_window: int = field(default=0, metadata={"identity": "unless_default"})
    least_squares: int = field(default=0, metadata={"identity": "unless_default"})

    def check_loop(self, path: str = "") -> None:
        """Check the ranges; ``path`` comes before a name in messages."""
        require(self.accumulate >= 1, f"{path}accumulate >= 1", accumulate=self.accumulate)
        require(0 <= self.average < 1, f"0 <= {path}average < 1", average=self.average)
        require(self.soup == 0 or self.soup >= 2, f"{path}soup >= 2, or 0", soup=self.soup)
        for name in ("batch_tokens", "length_window", "shard_window", "least_squares"):
            value = getattr(self, name)
            require(value >= 0, f"{path}{name} >= 0", **{name: value})

    def loop(self) -> dict[str, Any]:
        """Return these values by name."""
        return {each.name: getattr(self, each.name) for each in fields(Loop)}


@dataclass(frozen=True)
class Stage(Loop, Named):
    """One training run.

    Attributes:
        label: ``distil``, ``finetune``, ….
        student: Spec of a `Student`.
        objective: Spec of an `Objective`; building it adds ``student_dim`` and ``teacher_dim``.
        examples: The training examples.
        stores: Column name to the store with its teacher vectors; may name fewer columns than the examples.
        budget: Examples seen at the end, over all ranks.
        batch_size: Examples per step over all ranks: the global batch.
        optimizer: Optimiser, schedule and clipping.
        max_length: Maximum tokens per text for the student.
        autocast: ``float32`` or ``bfloat16``.
        seed: Seed of the initial weights, the order of the examples and dropout.
        start_from: The stage whose student this stage continues to train.
        live: A teacher that runs on every column during training; such a stage reads no store.
        dev: Suite that selects the checkpoint; None keeps the last one.
        evaluate_every: Examples between evaluations; 0 evaluates at the end only.
        evaluate_at: Examples after which it is evaluated besides, at the first step that has seen as many.
        patience: Evaluations without improvement before the stage ends; 0 disables early ending.
        prompts: What the student is given before every text, by role.
        keeps_objective: Whether the objective, too, starts from the weights of ``start_from``.
    """

    kind: ClassVar[str] = STAGES
    maker, imported, asked = Model.maker, False, False
    checkpoint, weights = None, ()
    version: ClassVar[int] = 1
    label: str
    student: Spec[Any]
    objective: Spec[Any]
    examples: Examples
    stores: Mapping[str, AnyStore]
    budget: int
    batch_size: int
    optimizer: Optimizer
    max_length: int = 128
    autocast: str = "float32"
    seed: int = 0
    start_from: "Stage | None" = None
    live: Live | None = None
    dev: DevSuite | None = None
    evaluate_every: int = 0
    patience: int = 0
    prompts: Prompts = field(default=Prompts(), metadata={"identity": "unless_default"})
    keeps_objective: bool = field(default=False, metadata={"identity": "unless_default"})
    evaluate_at: tuple[int, ...] = field(default=(), metadata={"identity": "unless_default"})

    def __post_init__(self) -> None:
        """Check the ranges, and that nothing of the test split steers training."""
        require(self.batch_size >= 2, "batch_size >= 2", batch_size=self.batch_size)
        require(
            self.budget >= self.batch_size,
            "budget >= batch_size",
            budget=self.budget,
            batch_size=self.batch_size,
            remedy="Raise the stage's budget of examples (--distil-budget, --finetune-budget), or lower the "
            "batch.",
        )
        self.check_loop()
        self._check_lengths()
        require(
            self.batch_size % self.accumulate == 0,
            "batch_size is a multiple of accumulate",
            batch_size=self.batch_size,
            accumulate=self.accumulate,
        )
        require(
            self.autocast in ("float32", "bfloat16"),
            "autocast in (float32, bfloat16)",
            autocast=self.autocast,
        )
        require(
            self.dev is None or isinstance(self.dev, DevSuite),
            "a stage must select by a dev suite, never a test suite",
            suite=type(self.dev).__name__,
        )
        assert not (self.live and self.stores), "a live teacher says what a store would"
        unknown = sorted(set(self.stores) - set(self.examples.columns))
        require(
            not unknown,
            "stores name columns of the examples",
            columns=sorted(self.examples.columns),
            stores=unknown,
        )

    def _check_lengths(self) -> None:
        """Check that batches by tokens hold what they must."""
        least = TEXTS_TOGETHER * self.max_length
        require(
            self.batch_tokens == 0 or self.batch_tokens >= least,
            f"batch_tokens >= {TEXTS_TOGETHER} * max_length, or 0",
            batch_tokens=self.batch_tokens,
            max_length=self.max_length,
            remedy=f"A batch has at least {TEXTS_TOGETHER} texts: give {least:,} or more tokens.",
        )
        require(
            not self.batch_tokens or TEXTS_TOGETHER % self.accumulate == 0,
            f"accumulate divides {TEXTS_TOGETHER} with batch_tokens",
            accumulate=self.accumulate,
        )

    @property
    def by_length(self) -> bool:
        """True if which texts share a batch depends on their lengths."""
        return self.batch_tokens > 0 or self.length_window > 0

    @property
    def steps(self) -> int:
        """Optimiser steps: the budget over the batch, rounded down.

        With ``batch_tokens`` it depends on the texts, and `training.batching` knows it.
        """
        return self.budget // self.batch_size

    @property
    def examples_seen(self) -> int:
        """Examples that this stage sees: whole batches, or with ``batch_tokens`` a multiple of 8."""
        if self.batch_tokens:
            return self.budget // TEXTS_TOGETHER * TEXTS_TOGETHER
        return self.steps * self.batch_size

    @property
    def examples_in_all(self) -> int:
        """Examples that this stage and all before it see."""
        return sum(stage.examples_seen for stage in self.chain())

    def chain(self) -> Iterator["Stage"]:
        """The stages from the first to this one, those of its teachers among them, each once."""
        seen: set[str] = set()
        for before in self._before():
            for stage in before.chain():
                if stage.fingerprint not in seen:
                    seen.add(stage.fingerprint)
                    yield stage
        yield self

    def teachers(self) -> Iterator[Teacher]:
        """The published teachers that the stage learns from."""
        read = (*self.examples.teachers(), *(store.teacher for store in self.stores.values()))
        yield from (teacher for teacher in read if isinstance(teacher, Teacher))
        if self.live is not None:
            yield from teachers_in(self.live.model)

    def _before(self) -> Iterator["Stage"]:
        """The stages that this one reads: its teachers, then what it starts from."""
        for teacher in (*self.examples.teachers(), *(store.teacher for store in self.stores.values())):
            if isinstance(teacher, Stage):
                yield teacher
        if self.live is not None and self.live.start_from is not None:
            yield self.live.start_from
        if self.start_from is not None:
            yield self.start_from
