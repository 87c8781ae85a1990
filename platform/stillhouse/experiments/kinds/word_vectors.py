"""Word vectors, for students that read words."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stillhouse.experiments.data_kind import DataKind
from stillhouse.plan.data import Model

if TYPE_CHECKING:
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.preparation import Preparation


@dataclass(frozen=True)
class WordVectors(DataKind[Model]):
    """Word vectors for a student that reads them.

    Attributes:
        vectors: A file of vectors such as GloVe's, or ``count`` for random vectors of the texts' words.
    """

    key = "words"
    title = "word vectors, or a task whose words are counted"
    remedy = "Give --words with a file of vectors such as GloVe's, or --task and --task-root."
    vectors: str = "count"

    def sketch(self, experiment: "Experiment") -> Model:
        """A model that stands for the vectors."""
        return Model("placeholder")

    def prepare(self, context: "Preparation") -> Model | None:
        """Write the vectors of the words that the training texts hold."""
        from stillhouse.experiments.vocabulary import word_vectors

        if not context.training:
            return None
        context.prepare_others(self)
        return word_vectors(context.workspace, self.vectors, context.texts, context.experiment.seed)
