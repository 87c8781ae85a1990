"""Word vectors with their tokenizer, in the folder that a recurrent student is initialised from.

The folder has ``tokenizer.json`` (words, lower-cased), ``model.safetensors`` (one tensor, ``words``, V x d)
and ``config.json``. It is resolved and hashed like the folder of any other model.

Texts are split as in the Penn Treebank and GloVe: ``don't`` into ``do`` and ``n't``, ``it's`` into ``it`` and
``'s``; ``u.s.`` is one word, and other punctuation is separate. Hyphens are split as well: ``well-known`` is
hardly ever in a vocabulary, but its parts are.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stillhouse.core.artifacts import write_atomically, write_json
from stillhouse.core.errors import BadInput, require
from stillhouse.core.json_text import parse_json
from stillhouse.corpora.reading.rows import numbered_lines

PAD, UNKNOWN, MASK = "[PAD]", "[UNK]", "[MASK]"
SPECIAL = (PAD, UNKNOWN, MASK)
"""The first three rows. Padding is row 0, as sentence-transformers assumes."""

_WORD = "|".join(
    (
        r"\p{L}+?(?=n't(?!\w))",
        r"n't(?!\w)",
        r"'(?:s|m|d|ll|re|ve)(?!\w)",
        r"(?:\p{L}\.){2,}",
        r"\d+(?:[.,:]\d+)*",
        r"[\p{L}\p{M}\p{N}_]+",
        r"\.{3}|--|``|''",
        r"\S",
    )
)
_NO_LIMIT = 1_000_000

Matrix = npt.NDArray[np.float32]


def write_vectors(
    source: str | Path,
    folder: str | Path,
    *,
    keep: Collection[str] | None = None,
    further: int = 0,
    seed: int = 0,
) -> list[str]:
    """Write the folder from published vectors, and return the words that have a row of their own.

    Words are lower-cased, like the texts; among equal words, one published in lower case is preferred, then
    the first. Words with a space are skipped, since texts are never split into them. ``[UNK]`` gets the mean
    of all rows, ``[MASK]`` a random row of average length, and ``[PAD]`` zeros.

    Args:
        source: GloVe's or word2vec's text format (a word and its numbers per line, plain or gzipped), or a
            JSON object of words to lists (``.json``).
        folder: Folder for the files.
        keep: Words to keep, such as those of `count_words`; None keeps all.
        further: Number of words to keep beside those, the first ones of the source; -1 keeps all.
        seed: Seed for drawing the row of ``[MASK]``.

    Raises:
        BadInput: If the file is missing or malformed, or no row is kept.
    """
    path = Path(source)
    if not path.is_file():
        raise BadInput(f"the file of word vectors must exist, but {source} does not.")
    published = _json_rows(path) if path.suffix == ".json" else _text_rows(path)
    require(further >= -1, "further >= -1", further=further)
    rows = _lowered(published, keep, further)
    if not rows:
        raise BadInput(
            f"no row of the word vectors in {source} is kept: it is empty or lacks the given words."
        )
    vectors_VD = np.stack(list(rows.values()))
    length = float(np.linalg.norm(vectors_VD, axis=1).mean())
    mask_D = _random(1, vectors_VD.shape[1], length, seed)[0]
    special = [np.zeros_like(mask_D), vectors_VD.mean(axis=0), mask_D]
    _write(Path(folder), list(rows), np.concatenate([np.stack(special), vectors_VD]))
    return list(rows)


def write_vocabulary(words: Iterable[str], folder: str | Path, *, dim: int, seed: int = 0) -> None:
    """Write the folder for words without vectors: random rows of length about 1, and zeros for ``[PAD]``.

    Raises:
        BadInput: If there are no words, or ``dim < 1``.
    """
    require(dim >= 1, "dim of the word vectors >= 1", dim=dim)
    known = [word for word in dict.fromkeys(words) if word not in SPECIAL]
    require(bool(known), "words of the vocabulary >= 1", words=0)
    vectors_VD = _random(len(SPECIAL) + len(known), dim, 1.0, seed)
    vectors_VD[0] = 0
    _write(Path(folder), known, vectors_VD)


def count_words(texts: Iterable[str], *, limit: int = 0) -> dict[str, int]:
    """Count the words of texts, split by the folder's tokenizer; the most frequent ones are first.

    Equal counts are in alphabetical order. The limit 0 returns all words.
    """
    require(limit >= 0, "limit >= 0", limit=limit)
    blank = _tokenizer([])
    counts: Counter[str] = Counter()
    for text in texts:
        lowered = blank.normalizer.normalize_str(text)
        counts.update(word for word, _ in blank.pre_tokenizer.pre_tokenize_str(lowered))
    frequent = sorted((-count, word) for word, count in counts.items())
    return {word: -count for count, word in (frequent[:limit] if limit else frequent)}


def _lowered(
    published: Iterable[tuple[str, Matrix]], keep: Collection[str] | None, further: int
) -> dict[str, Matrix]:
    rows: dict[str, Matrix] = {}
    settled: set[str] = set()
    for word, vector in published:
        lowered = word.lower()
        if lowered in settled or " " in word:
            continue
        if keep is not None and lowered not in keep and lowered not in rows:
            if further == 0:
                continue
            further -= 1
        if word == lowered:
            settled.add(lowered)
            rows[lowered] = vector
        else:
            rows.setdefault(lowered, vector)
    return rows


def _json_rows(path: Path) -> Iterator[tuple[str, Matrix]]:
    try:
        content = parse_json(path.read_bytes())
    except ValueError as error:
        raise BadInput(f"{path} must be JSON, but is not: {error}.") from None
    if not isinstance(content, dict) or not content:
        raise BadInput(f"{path} must be an object of words to vectors, but is not.")
    dim = len(next(iter(content.values())))
    for word, numbers in content.items():
        yield word, _vector(numbers, dim, f"{path}, word {word!r}")


def _text_rows(path: Path) -> Iterator[tuple[str, Matrix]]:
    """Read the text format. Some words contain spaces, so the numbers are taken from the right."""
    dim = 0
    for at, line in numbered_lines(path):
        fields = line.rstrip("\r\n ").split(" ")
        if at == 1 and len(fields) == 2:
            continue  # word2vec's format begins with the shape
        dim = dim or len(fields) - 1
        word = " ".join(fields[: len(fields) - dim])
        yield word, _vector(fields[len(fields) - dim :], dim, f"{path}, line {at}")


def _vector(numbers: Any, dim: int, where: str) -> Matrix:
    try:
        vector = np.asarray(numbers, dtype=np.float32)
    except (TypeError, ValueError):
        raise BadInput(f"{where}: must be a word and {dim} numbers, but is not.") from None
    if vector.shape != (dim,) or dim < 1 or not np.isfinite(vector).all():
        raise BadInput(f"{where}: must be a word and {max(dim, 1)} finite numbers, but is not.")
    return vector


def _random(rows: int, dim: int, length: float, seed: int) -> Matrix:
    drawn = np.random.default_rng(seed).standard_normal((rows, dim), dtype=np.float32)
    return drawn * np.float32(length / np.sqrt(dim))


def _tokenizer(words: list[str]) -> Any:
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers

    rows = {word: row for row, word in enumerate([*SPECIAL, *words])}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(rows, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Lowercase(), normalizers.Replace("’", "'")]
    )
    found = tokenizers.Regex(_WORD)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(found, behavior="removed", invert=True)
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def _write(folder: Path, words: list[str], vectors_VD: Matrix) -> None:
    from safetensors.numpy import save

    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "tokenizer.json", _tokenizer(words).to_str().encode())
    named = {"pad_token": PAD, "unk_token": UNKNOWN, "mask_token": MASK}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": _NO_LIMIT, **named}
    write_json(folder / "tokenizer_config.json", settings)
    content = save({"words": np.ascontiguousarray(vectors_VD)}, {"format": "pt"})
    write_atomically(folder / "model.safetensors", content)
    vocabulary, dim = vectors_VD.shape
    write_json(folder / "config.json", {"vocab_size": vocabulary, "hidden_size": dim})
