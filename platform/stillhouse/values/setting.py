"""The prepared data of an experiment by kind, and the length of its stages: all that its trials share."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from stillhouse.core.identity import Spec
from stillhouse.core.roles import Prompts, Reading
from stillhouse.values.data import (
    AllRows,
    AnyStore,
    Examples,
    FewerNegatives,
    Mined,
    Model,
    Recorded,
    Sampled,
    Scored,
    Store,
    StoreEnsemble,
    TableStore,
    Teacher,
    sample,
)
from stillhouse.values.graph import swapped
from stillhouse.values.kinds import Kind
from stillhouse.values.stage import DevSuite, Loop

P = TypeVar("P")
UNCOUNTED = 1 << 40
"""Rows of data that is not there, in a sketch: beyond every budget."""


@dataclass(frozen=True)
class SentenceData:
    """Unlabelled text with its teacher's vectors.

    Attributes:
        store: The teacher's vectors of every text.
        rows: Number of texts that are trained on.
        sample: The texts that are trained on, where that is a share of them; None for all.
        role: Role of the texts; empty for plain ones. Texts of several sources have the roles of their store.
    """

    store: AnyStore
    rows: int
    sample: Examples | None = None
    role: str = field(default="", metadata={"identity": "unless_default"})

    @property
    def examples(self) -> Examples:
        """The texts that are trained on, column ``text``."""
        return self.sample or self.whole()

    @property
    def only_store(self) -> Store:
        """The store of texts that have one source."""
        assert isinstance(self.store, Store), "there are several sources"
        return self.store

    def whole(self, label: str = "examples") -> Examples:
        """All texts, column ``text``."""
        columns = {"text": self.store.texts}
        return Examples(columns, AllRows(), label=label, text_role=self.role, text_roles=self.store.roles)

    def share(self, fraction: float) -> "SentenceData":
        """A share of the texts to train on; the teacher's vectors stay whole."""
        parts = self.store.roles or ((self.rows, self.role),)
        rows = sum(max(1, round(fraction * part)) for part, _ in parts)
        return dataclasses.replace(self, rows=rows, sample=sample(self.whole("sentences"), fraction))


@dataclass(frozen=True)
class PairData:
    """Labelled text for fine-tuning.

    Attributes:
        examples: Columns ``query``, ``passage`` and, where there are hard negatives, ``negatives``.
        stores: The teacher's vectors, by column.
    """

    examples: Examples
    stores: Mapping[str, TableStore]

    def share(self, fraction: float) -> "PairData":
        """A share of the pairs; negatives are mined among all of them."""
        return PairData(sample(self.examples, fraction), self.stores)


@dataclass(frozen=True)
class ScoreData:
    """The source of a reranker's scores of pairs and their hard negatives.

    Attributes:
        given: Whether the pairs come with them, as the value ``scores``, (N, 1 + K), the passage's first.
        cross_encoder: A published reranker that scores the pairs; None where there is none.
    """

    given: bool = False
    cross_encoder: Model | None = None


@dataclass(frozen=True)
class ParallelData:
    """Sentences with their translations.

    Attributes:
        examples: Columns ``source`` and ``target``.
        store: The teacher's vectors of the sources.
        contrast: What the contrastive stage reads, over the same tables, where that differs; None where it
            does not.
    """

    examples: Examples
    store: TableStore
    contrast: Examples | None = None

    def share(self, fraction: float) -> "ParallelData":
        """A share of the pairs; the teacher's vectors stay whole."""
        contrast = None if self.contrast is None else sample(self.contrast, fraction)
        return ParallelData(sample(self.examples, fraction), self.store, contrast)


@dataclass(frozen=True)
class TaskData:
    """Texts, or pairs of texts, each with a class.

    Attributes:
        examples: Columns ``text`` and, for pairs, ``other``; value ``label``.
        classes: Number of classes (C).
        dev: The suite that selects a checkpoint fine-tuned on the task; its evaluators may require scores.
        augmented: The same rows and varied ones, which have no label; None where there are none.
        untuned: The suite that scores plain vectors, for pairs with two classes; None for other tasks.
    """

    examples: Examples
    classes: int
    dev: DevSuite
    augmented: Examples | None = None
    untuned: DevSuite | None = None

    def share(self, fraction: float) -> "TaskData":
        """A share of the rows, in the proportions of their labels."""
        return dataclasses.replace(self, examples=sample(self.examples, fraction))


@dataclass(frozen=True)
class Setting(Loop):
    """Everything that all trials of an experiment share: all but the hyper-parameters.

    Attributes:
        teacher: The large model.
        student: Spec of the student before any projection.
        dev: The suite that selects checkpoints and trials.
        data: The prepared data, by `Kind.key`; read it as ``setting[Sentences]`` or ``setting.get(Pairs)``.
        distil_budget: Examples of the distillation stage.
        teacher_dim: The teacher's embedding dimension (E).
        finetune_budget: Examples of the fine-tuning stage; 0 leaves it out, -1 has ``finetune_epochs``.
        epochs: Passes of a distillation stage over its rows, instead of ``distil_budget``; None takes that.
        finetune_epochs: The same for the fine-tuning stage and ``finetune_budget``.
        rows: Number of rows of the prepared examples, by fingerprint; none in a sketch.
        evaluations: Dev evaluations per stage.
        every: Optimiser steps between two dev evaluations, instead of ``evaluations``; 0 takes those.
        patience: Evaluations without a better dev figure before a stage ends; 0 never ends it early.
        finetune_patience: The same for the fine-tuning stage; -1 takes ``patience``.
        max_length: Tokens per text for the student.
        autocast: ``float32`` or ``bfloat16``.
        seed: Seed of everything random in training.
        prompts: The student's prompts by role.
        teacher_reading: How the teacher reads texts where it is run; None reads them as the student does.
    """

    teacher: Teacher
    student: Spec[Any]
    dev: DevSuite
    data: Mapping[str, Any]
    distil_budget: int
    teacher_dim: int = 0
    finetune_budget: int = 0
    epochs: float | None = field(default=None, metadata={"identity": "unless_default"})
    finetune_epochs: float | None = field(default=None, metadata={"identity": "unless_default"})
    rows: Mapping[str, int] = field(default_factory=dict, metadata={"identity": False})
    evaluations: int = 4
    every: int = 0
    patience: int = 0
    finetune_patience: int = -1
    accumulate: int = field(default=1, kw_only=True, metadata={"identity": "unless_default"})
    max_length: int = 128
    autocast: str = "float32"
    seed: int = 0
    prompts: Prompts = field(default=Prompts(), metadata={"identity": "unless_default"})
    teacher_reading: Reading | None = field(default=None, metadata={"identity": "unless_default"})

    def __getitem__(self, kind: type[Kind[P]]) -> P:
        """The prepared data of a kind that the method needs."""
        value = self.get(kind)
        assert value is not None, f"a method that reads {kind.key} declares it in `needs`"
        return value

    def get(self, kind: type[Kind[P]]) -> P | None:
        """The prepared data of a kind; None where the experiment has none of it."""
        value: P | None = self.data.get(kind.key)
        return value

    def having(self, kind: type[Kind[P]], value: P | None) -> "Setting":
        """The same setting with other data of a kind; None removes it."""
        data = {key: known for key, known in self.data.items() if key != kind.key}
        return dataclasses.replace(self, data=data if value is None else {**data, kind.key: value})

    def weighted(self, weights: tuple[float, ...]) -> "Setting":
        """The same setting with other weights of its teachers, in all that stages learn from.

        What selects stays as it is, so that trials with different weights are compared by one measure; so do
        hard negatives, which are mined once. The loss on held-out texts follows the weights.
        """
        learnt = (SentenceData, PairData, ParallelData)

        def change(joined: StoreEnsemble) -> StoreEnsemble:
            return dataclasses.replace(joined, weights=weights)

        data = {
            key: swapped(value, StoreEnsemble, change, but=Examples) if isinstance(value, learnt) else value
            for key, value in self.data.items()
        }
        dev = dataclasses.replace(self.dev, held_out=swapped(self.dev.held_out, StoreEnsemble, change))
        return dataclasses.replace(self, teacher=self.teacher.having(weights=weights), data=data, dev=dev)

    def rows_of(self, examples: Examples) -> int:
        """Number of rows of examples: the prepared ones, or others that are made of them."""
        if not self.rows:
            return UNCOUNTED
        known, origin = self.rows.get(examples.fingerprint), examples.origin
        if known is not None:
            return known
        if isinstance(origin, Sampled):
            return max(1, round(origin.fraction * self.rows_of(origin.rows)))
        assert isinstance(origin, Mined | FewerNegatives | Recorded | Scored), "other examples are counted"
        return self.rows_of(origin.pairs if isinstance(origin, Mined) else origin.rows)

    def length(self, examples: Examples, *, epochs: float = 0.0, finetunes: bool = False) -> int:
        """Examples that a stage sees in total: so many passes over its rows, or the budget."""
        passes = epochs or (self.finetune_epochs if finetunes else self.epochs)
        if passes:
            return max(1, round(passes * self.rows_of(examples)))
        return self.finetune_budget if finetunes else self.distil_budget

    @property
    def teacher_length(self) -> int:
        """Tokens per text that the teacher reads where it is run."""
        return self.max_length if self.teacher_reading is None else self.teacher_reading.max_length

    def unlike_student(self, reading: Reading | None) -> Reading | None:
        """Return how a live teacher reads, or None if the student reads in the same way."""
        return None if reading == Reading(self.max_length, self.prompts) else reading

    def common(self, *, finetunes: bool = False) -> dict[str, Any]:
        """The arguments that every stage of a plan takes from here.

        The fine-tuning stage may have a patience of its own. Its batches are of texts in any case: its loss
        compares them, and it has few.
        """
        own = finetunes and self.finetune_patience >= 0
        loop = self.loop()
        if finetunes:
            loop |= dict.fromkeys(("batch_tokens", "length_window", "shard_window"), 0)
        return {
            "max_length": self.max_length,
            "autocast": self.autocast,
            "seed": self.seed,
            "dev": self.dev,
            "patience": self.finetune_patience if own else self.patience,
            "prompts": self.prompts,
            **loop,
        }
