"""What all trials of an experiment share: the data that is prepared, and how long stages are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stillhouse.core.identity import Spec
from stillhouse.plan.data import Examples, Model, RankingTask, Store
from stillhouse.plan.stage import DevSuite


@dataclass(frozen=True)
class LabelledTask:
    """Texts, or pairs of texts, with a class each.

    Attributes:
        examples: Columns ``text`` and, for pairs, ``other``; value ``label``.
        classes: C.
        dev: What selects a checkpoint that is fine-tuned on it; its evaluators may ask for scores.
        augmented: The same rows and varied ones, which have no label; None where there are none.
        untuned: What measures bare vectors, of pairs with two classes; None for other tasks.
    """

    examples: Examples
    classes: int
    dev: DevSuite
    augmented: Examples | None = None
    untuned: DevSuite | None = None


@dataclass(frozen=True)
class Setting:
    """What all trials of an experiment share: everything but the hyper-parameters.

    Attributes:
        teacher: The large model.
        student: Spec of the student before any projection.
        sentences: Teacher's vectors of unlabelled text.
        texts: The rows of it that are trained on; None takes all.
        labelled: (query, passage, negatives) for fine-tuning; None where there is none.
        labelled_stores: Teacher's vectors of the labelled text, by column.
        teacher_dim: E.
        parallel: Sentences with their translations (source, target); None where there are none.
        parallel_store: Teacher's vectors of the sources.
        dev: What selects checkpoints and trials.
        distil_budget: Examples of the distillation stage.
        finetune_budget: Examples of the fine-tuning stage; 0 leaves it out.
        evaluations: Evaluations a stage.
        patience: Evaluations without a better dev figure before a stage ends; 0 never ends it.
        max_length: Tokens a text for the student.
        autocast: ``float32`` or ``bfloat16``.
        sentence_rows: Rows of it that are trained on: what an epoch is.
        seed: Of everything random.
        words: Word vectors, for a student that is no transformer; None where no method asks for them.
        task: Labelled texts to fine-tune on; None where there are none.
        ranking: Claims with candidate documents; None where no method asks for them.
    """

    teacher: Model
    student: Spec[Any]
    sentences: Store
    dev: DevSuite
    distil_budget: int
    texts: Examples | None = None
    sentence_rows: int = 0
    labelled: Examples | None = None
    labelled_stores: Mapping[str, Store] = field(default_factory=dict)
    teacher_dim: int = 0
    parallel: Examples | None = None
    parallel_store: Store | None = None
    finetune_budget: int = 0
    evaluations: int = 4
    patience: int = 0
    max_length: int = 128
    autocast: str = "float32"
    seed: int = 0
    words: Model | None = None
    task: LabelledTask | None = None
    ranking: RankingTask | None = None

    def common(self) -> dict[str, Any]:
        """The arguments that every stage of a plan takes from here."""
        return {
            "max_length": self.max_length,
            "autocast": self.autocast,
            "seed": self.seed,
            "dev": self.dev,
            "patience": self.patience,
        }
