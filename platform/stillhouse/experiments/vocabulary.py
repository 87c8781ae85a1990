"""Word vectors for the words of training texts."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse.core.artifacts import locked
from stillhouse.core.console import say
from stillhouse.core.errors import require
from stillhouse.core.identity import fingerprint
from stillhouse.corpora.reading.corpus import list_files
from stillhouse.corpora.tables import open_texts
from stillhouse.corpora.word_vectors import count_words, write_vectors, write_vocabulary
from stillhouse.plan.data import Model, TextTable
from stillhouse.teachers.weights import resolve_model

if TYPE_CHECKING:
    from stillhouse.core.artifacts import Workspace

VERSION = 1

COUNT = "count"
"""Instead of a file of vectors: the words of the training texts, with random vectors."""

DIM = 300
"""Dimension of vectors that are not read from a file, as of GloVe's."""

MOST_WORDS = 200_000


def word_vectors(workspace: "Workspace", source: str, tables: Sequence[TextTable], seed: int = 0) -> Model:
    """Write the vectors of the words in some texts: published ones, or random ones that are learned.

    Args:
        workspace: Where the folder will be.
        source: A file such as GloVe's; `COUNT` or nothing takes the words of the texts.
        tables: The texts.
        seed: Seed of random vectors.

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
    }
    folder = workspace.root / "words" / fingerprint(signature)
    with locked(folder.with_suffix(".lock")):
        if not (folder / "config.json").is_file():  # written last
            counted = count_words(_texts(workspace, tables), limit=0 if published else MOST_WORDS)
            if published:
                write_vectors(source, folder, keep=set(counted), seed=seed)
            else:
                write_vocabulary(counted, folder, dim=DIM, seed=seed)
            say(f"  word vectors for the {len(counted):,} words of the texts in {folder}")
    return resolve_model(str(folder))


def _texts(workspace: "Workspace", tables: Sequence[TextTable]) -> Iterator[str]:
    for table in tables:
        yield from open_texts(workspace, table)
