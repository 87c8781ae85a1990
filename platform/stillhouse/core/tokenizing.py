"""From texts to padded batches of token ids, for training, embedding and evaluation alike.

Texts are cut on the side that their tokenizer states, and batches are padded on the right: a text's vector
does not depend on the side, except in a model of absolute positions, which `teachers.agreement` refuses.
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
from stillhouse.core.json_text import parse_json
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
        self._special = not is_static(folder)
        folder = transformer_part(folder)
        self._lower = lower_cases(folder)
        if self._special:
            tokenizer = _of_transformer(folder)
            self._backend, most = tokenizer.backend_tokenizer, int(tokenizer.model_max_length)
            self.pad_id, self.side = int(tokenizer.pad_token_id or 0), str(tokenizer.truncation_side)
            self._names = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
        else:
            self._backend, most, self.pad_id, self._names = _of_table(folder), sys.maxsize, 0, {}
            # Stock sentence-transformers truncates to the length in the file, if there is one.
            stated = self._backend.truncation or {}
            self.side = str(stated.get("direction", "right"))
            max_length = min(max_length, stated.get("max_length", max_length))
        require(
            3 <= max_length <= most, f"3 <= max_length <= {most}, what the model takes", max_length=max_length
        )
        # Some published tokenizers come with their own truncation and padding.
        self._backend.no_padding()
        self._backend.enable_truncation(max_length, direction=self.side)
        self._max_length = max_length

    def __call__(self, texts: Sequence[str]) -> tuple[Ids, Offsets]:
        """Tokenize texts: all ids concatenated, and where each text begins (one more offset than texts)."""
        texts = [text.lower() for text in texts] if self._lower else list(texts)
        encoded = self._backend.encode_batch_fast(texts, add_special_tokens=self._special)
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
        same_words = self._backend.get_vocab() == other._backend.get_vocab()
        return bool(
            same_words
            and (self._lower, self.side) == (other._lower, other.side)
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
        if self._lower:
            lower, rest = tokenizers.normalizers.Lowercase(), bare.normalizer
            bare.normalizer = tokenizers.normalizers.Sequence([lower, rest] if rest else [lower])
        bare.save(str(file))

    def write(self, folder: Path) -> None:
        """Write the tokenizer of a transformer: ``tokenizer.json``, with length and side, for any client.

        Args:
            folder: Has the other files of the tokenizer; its ``tokenizer_config.json`` gets both too.
        """
        self._backend.save(str(folder / "tokenizer.json"))
        file = folder / "tokenizer_config.json"
        stated = _object(file) if file.is_file() else dict(self._names)
        stated.pop("max_length", None)
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


def transformer_part(folder: Path) -> Path:
    """Folder of a model's tokenizer: the first module of a sentence-transformers folder, else the folder."""
    modules = _modules(folder)
    return folder / modules[0]["path"] if modules else folder


def is_static(folder: Path) -> bool:
    """Whether the first module of a sentence-transformers folder is a table of token vectors."""
    return first_module(folder) == "StaticEmbedding"


def first_module(folder: Path) -> str:
    """Class of the first module of a sentence-transformers folder; a plain folder counts as a transformer."""
    modules = _modules(folder)
    return str(modules[0]["type"]).rpartition(".")[2] if modules else "Transformer"


def lower_cases(folder: Path) -> bool:
    """Whether sentence-transformers lower-cases texts before this folder's tokenizer."""
    settings = sorted(folder.glob("sentence_*_config.json"))
    return any(_object(path).get("do_lower_case", False) for path in settings)


def _modules(folder: Path) -> list[dict[str, Any]]:
    file = folder / "modules.json"
    if not file.is_file():
        return []
    try:
        modules = parse_json(file.read_bytes())
        whole = all(isinstance(module["type"], str) and isinstance(module["path"], str) for module in modules)
    except (ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{file} must be a list of modules in JSON, but reading it gave: {error!r}.") from None
    if not whole:
        raise BadInput(f"{file} must be a list of modules in JSON, each with a type and a path.")
    found: list[dict[str, Any]] = modules
    return found


def _object(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(path.read_bytes())
    except ValueError as error:
        raise BadInput(f"{path} must be JSON, but reading it gave: {error}.") from None
    if not isinstance(content, dict):
        raise BadInput(f"{path} must be a JSON object, but is {type(content).__name__}.")
    return content


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
