"""Word vectors for the words of training texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from stillhouse.cluster.leases import make_once
from stillhouse.core.console import say
from stillhouse.core.errors import require
from stillhouse.core.identity import fingerprint
from stillhouse.corpora.reading.sources import list_files
from stillhouse.corpora.tables import open_texts
from stillhouse.corpora.word_vector_files import count_words, write_vectors, write_vocabulary
from stillhouse.experiments.data_kind import Reader
from stillhouse.experiments.kinds.word_vectors import COUNT, FURTHER, WordVectors
from stillhouse.teachers.weights import resolve_model
from stillhouse.values.data import Model, TextTable

if TYPE_CHECKING:
    from stillhouse.core.artifacts import Workspace
    from stillhouse.experiments.experiment import Experiment
    from stillhouse.experiments.preparation import Preparation

VERSION = 2


@dataclass(frozen=True)
class WordTable:
    """The words of some texts with their vectors: an artifact that is a model, which students begin with.

    Its label says whether the vectors are published ones or the words are counted.
    """

    label: str
    fingerprint: str
    kind: ClassVar[str] = "words"


DIM = 300
"""Dimension of vectors that are not read from a file, as of GloVe's."""

MOST_WORDS = 200_000
"""Words that are counted, the most frequent ones."""


class VocabularyReader(Reader[WordVectors, Model]):
    """The reader of word vectors."""

    def check_files(self) -> None:
        """Refuse a missing file."""
        if self.kind.vectors != COUNT:
            list_files(self.kind.vectors, "file of word vectors")

    def sketch(self, experiment: "Experiment") -> Model:
        """A model that stands for the vectors."""
        return Model("placeholder")

    def prepare(self, context: "Preparation") -> Model:
        """Write the vectors of the words that the training texts hold, and of further ones of a file."""
        seed, further = context.experiment.seed, self.kind.further
        return word_vectors(context.workspace, self.kind.vectors, context.words, seed, further=further)


def word_vectors(
    workspace: "Workspace",
    source: str,
    tables: Sequence[TextTable],
    seed: int = 0,
    *,
    further: int = FURTHER,
) -> Model:
    """Write the vectors of the words in some texts: a file's, or with `COUNT` or no source random ones.

    ``further`` is the number of words of a file that are kept although the texts do not hold them; -1 keeps
    all.

    Raises:
        BadInput: The file is missing or malformed, or holds none of the words.
    """
    published = source not in ("", COUNT)
    require(not published or Path(source).is_file(), "the file of word vectors must exist", words=source)
    signature = {
        "version": VERSION,
        "source": list_files(source)[1] if published else COUNT,
        "texts": [table.sha256 for table in tables],
        "seed": seed,
        "further": further if published else 0,
    }
    words = WordTable("published" if published else "counted", fingerprint(signature))

    def make(folder: Path) -> dict[str, Any]:
        texts = (text for table in tables for text in open_texts(workspace, table))
        counted = count_words(texts, limit=0 if published else MOST_WORDS)
        if published:
            written = write_vectors(source, folder, keep=set(counted), further=further, seed=seed)
            shared = sum(word in counted for word in written)
            share = sum(counted.get(word, 0) for word in written) / max(1, sum(counted.values()))
            say(
                f"  {len(written):,} word vectors of {Path(source).name} in {folder}: they cover "
                f"{shared:,} of the {len(counted):,} words of the texts, "
                f"{100 * share:.1f} % of their occurrences"
            )
        else:
            write_vocabulary(counted, folder, dim=DIM, seed=seed)
            say(f"  random vectors for the {len(counted):,} words of the texts in {folder}")
        return {"source": source, "texts": signature["texts"]}

    return resolve_model(str(make_once(workspace, words, make)))
