"""Word vectors, for students that read words."""

from dataclasses import dataclass

from stillhouse.core.errors import require
from stillhouse.core.type_casts import check_types
from stillhouse.experiments.data_kind import DataKind
from stillhouse.values.data import Model

COUNT = "count"
"""Instead of a file of vectors: the words of the training texts, with random vectors."""
FURTHER = 100_000


@dataclass(frozen=True)
class WordVectors(DataKind[Model]):
    """Word vectors for a student that reads them.

    Attributes:
        vectors: A file of vectors such as GloVe's, or ``count`` for random vectors of the texts' words.
        further: Number of words that are kept of a file beside those of the training texts, its first ones,
            for texts that come later; -1 keeps all.
    """

    key = "words"
    title = "word vectors, or a task whose words are counted"
    remedy = "Give --words with a file of vectors such as GloVe's, or --task and --task-root."
    read_by = "stillhouse.experiments.vocabulary:VocabularyReader"
    vectors: str = COUNT
    further: int = FURTHER

    def __post_init__(self) -> None:
        """Check the range."""
        check_types(self, "words")
        require(self.further >= -1, "words.further >= -1", further=self.further)
