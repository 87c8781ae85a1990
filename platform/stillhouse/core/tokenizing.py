"""From texts to padded batches of token ids, for training, embedding and evaluation alike.

Texts are cut on the side that their tokenizer states, and batches are padded on the right: a text's vector
does not depend on the side, except in a model of absolute positions, which `teachers.runtime_check` refuses.
"""

import functools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from stillhouse.core.errors import BadInput, require
from stillhouse.core.model_folder import read_folder
from stillhouse.core.types import IntArray, Tokens

Ids = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]


class FastTokenizer:
    """A tokenizer that returns token ids with special tokens, truncated to a maximum length and not padded.

    A static model (a table of token vectors) gets no special tokens, as in stock sentence-transformers; a
    shorter length in its own tokenizer file is respected too.

    Attributes:
        pad_id: Token id that batches are padded with.
        side: Where longer texts are cut: ``right``, or ``left`` where their ends are kept.

    Args:
        folder: A Hugging Face or sentence-transformers folder.
        max_length: Maximum number of tokens per text, special tokens included.

    Raises:
        BadInput: The folder has no fast tokenizer, or its model takes fewer tokens.
    """

    def __init__(self, folder: Path, max_length: int) -> None:
        stated = read_folder(folder)
        self._special, self.side = not stated.static, stated.truncation_side
        if self._special:
            tokenizer = _of_transformer(stated.transformer)
            self._backend, self.pad_id = tokenizer.backend_tokenizer, int(tokenizer.pad_token_id or 0)
            self._names = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
            # Stock sentence-transformers takes the length of its own settings, if there is one.
            most = max(int(tokenizer.model_max_length), stated.length)
        else:
            self._backend, most, self.pad_id, self._names = _of_table(stated.transformer), sys.maxsize, 0, {}
            max_length = min(max_length, stated.length or max_length)
        if stated.lower:
            self._backend.normalizer = _lower_casing(self._backend.normalizer)
        require(
            3 <= max_length <= most, f"3 <= max_length <= {most}, what the model takes", max_length=max_length
        )
        # Some published tokenizers come with their own truncation and padding.
        self._backend.no_padding()
        self._backend.enable_truncation(max_length, direction=self.side)
        self._max_length = max_length

    def __call__(self, texts: Sequence[str]) -> tuple[Ids, Offsets]:
        """Tokenize texts: all ids concatenated, and where each text begins (one more offset than texts)."""
        encoded = self._backend.encode_batch_fast(list(texts), add_special_tokens=self._special)
        rows = [text.ids for text in encoded]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        return np.fromiter((i for row in rows for i in row), np.int32, int(offsets[-1])), offsets

    def whole_lengths(self, texts: Sequence[str]) -> Offsets:
        """Count the tokens of texts that are not cut, special tokens included."""
        try:
            self._backend.no_truncation()
            return np.diff(self(texts)[1])
        finally:
            self._backend.enable_truncation(self._max_length, direction=self.side)

    def same_as(self, other: "FastTokenizer") -> bool:
        """Whether both have the same vocabulary, ids and special tokens, and treat case and ends alike."""
        mine, theirs = self._backend, other._backend
        return bool(
            mine.get_vocab() == theirs.get_vocab()
            and (repr(mine.normalizer), self.side) == (repr(theirs.normalizer), other.side)
            and self.special_tokens_around() == other.special_tokens_around()
        )

    def prefix_length(self, prompt: str) -> int:
        """Number of tokens that a prompt adds before every text, special tokens before it included."""
        encoded = self._backend.encode(prompt, add_special_tokens=self._special)
        return len(encoded.ids) - int(encoded.special_tokens_mask[-1])

    def special_tokens_around(self) -> tuple[list[int], list[int]]:
        """Ids of the special tokens before and after every text."""
        encoded = self._backend.encode("a", add_special_tokens=self._special)
        own = [place for place, special in enumerate(encoded.special_tokens_mask) if not special]
        return encoded.ids[: own[0]], encoded.ids[own[-1] + 1 :]

    def write_static(self, file: Path) -> None:
        """Write the tokenizer of a static model: same tokens, same truncation, no special tokens."""
        import tokenizers

        bare: Any = tokenizers.Tokenizer.from_str(self._backend.to_str())
        own = self._max_length - sum(len(ids) for ids in self.special_tokens_around())
        bare.enable_truncation(own, direction=self.side)
        bare.save(str(file))

    def write(self, folder: Path) -> None:
        """Write the tokenizer of a transformer: ``tokenizer.json``, with length and side, for any client.

        The folder has the other files of the tokenizer; its ``tokenizer_config.json`` gets both too.
        """
        self._backend.save(str(folder / "tokenizer.json"))
        file = folder / "tokenizer_config.json"
        stated = dict(read_folder(folder).tokenizer) or dict(self._names)
        stated.pop("max_length", None)
        stated["pad_token"] = stated.get("pad_token") or self._backend.id_to_token(self.pad_id)
        cut = {"model_max_length": self._max_length, "truncation_side": self.side, "padding_side": "right"}
        file.write_text(json.dumps(stated | cut, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def added_tokens(self) -> list[str]:
        """Return the tokens that are found in a text before it is split into pieces."""
        return [token.content for token in self._backend.get_added_tokens_decoder().values()]


@functools.lru_cache(maxsize=2)
def cached_tokenizer(folder: Path, max_length: int) -> FastTokenizer:
    """Return a tokenizer that this process keeps, as it tokenises many shards with it."""
    return FastTokenizer(folder, max_length)


def token_batches(lengths: IntArray, batch_tokens: int) -> Iterator[IntArray]:
    """Split rows, longest first, into batches of at most ``batch_tokens`` padded tokens, or of one row.

    Longest first, so that a batch that does not fit into memory fails at once.
    """
    order = np.argsort(-lengths, kind="stable")
    first = 0
    while first < len(order):
        last = first + max(1, batch_tokens // max(1, int(lengths[order[first]])))
        yield order[first:last]
        first = last


def pad(ids: IntArray, starts_B: IntArray, lengths_B: IntArray, pad_id: int) -> Tokens:
    """Slice texts out of concatenated ids, and pad them on the right to the longest."""
    columns_T = np.arange(max(1, int(lengths_B.max(initial=1))))
    mask_BT = columns_T < lengths_B[:, None]
    ids_BT = np.full(mask_BT.shape, pad_id, np.int64)
    ids_BT[mask_BT] = ids[(starts_B[:, None] + columns_T)[mask_BT]]
    return Tokens(torch.from_numpy(ids_BT), torch.from_numpy(mask_BT.astype(np.int64)))


_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")
"""Files of which a tokenizer has one: without them transformers makes an empty one."""


def require_vocabulary(folder: Path) -> None:
    """Refuse the folder of a transformer without the files of a tokenizer.

    Raises:
        BadInput: It has none.
    """
    if not any((folder / name).is_file() for name in _VOCABULARIES):
        raise BadInput(
            f"{folder} must hold a tokenizer, but has no {', '.join(_VOCABULARIES)}. Copy the files of the "
            "tokenizer into the folder, or download the model again."
        )


def cut_texts(stock: Any, max_length: int) -> None:
    """Give a stock sentence-transformers model another maximum length; it keeps the side that it cuts on."""
    if hasattr(stock.tokenizer, "enable_truncation"):
        # A static model has no maximum length except its tokenizer's.
        stated = stock.tokenizer.truncation or {}
        length = min(max_length, stated.get("max_length", max_length))
        stock.tokenizer.enable_truncation(length, direction=stated.get("direction", "right"))
    else:
        stock.max_seq_length = max_length


def _lower_casing(normalizer: Any) -> Any:
    """The normaliser of a tokenizer with lower-casing before it, as sentence-transformers adds it."""
    from tokenizers import normalizers

    several: Any = normalizers.Sequence
    parts = list(normalizer) if isinstance(normalizer, several) else [normalizer]
    if any(isinstance(part, normalizers.Lowercase) for part in parts):
        return normalizer
    return normalizers.Sequence([normalizers.Lowercase(), *([normalizer] if normalizer else [])])


def _of_transformer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    require_vocabulary(folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{folder} must hold a tokenizer, but loading it gave: {error}") from error
    require(bool(tokenizer.is_fast), "a model has a fast tokenizer", folder=str(folder))
    return tokenizer


def _of_table(folder: Path) -> Any:
    import tokenizers

    file = folder / "tokenizer.json"
    require(file.is_file(), "a static model's folder holds its tokenizer.json", folder=str(folder))
    return tokenizers.Tokenizer.from_file(str(file))
