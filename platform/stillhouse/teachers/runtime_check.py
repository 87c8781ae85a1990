"""Whether a store's vectors are a model's own, compared before any is kept.

A teacher's own are those that stock sentence-transformers gives with the whole folder; another runtime's are
compared with PyTorch's on texts of the store.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.tokenizing import FastTokenizer, Ids, Offsets, cut_texts
from stillhouse.corpora.tables import sample_of
from stillhouse.teachers.forward import Encode, Forward, Vectors, default_batch_tokens
from stillhouse.teachers.prompts import prompts_of
from stillhouse.teachers.weights import on_this_machine
from stillhouse.values.data import Model, Store

FLOOR = 0.9999
"""Cosine to PyTorch's vectors that every vector of another runtime must reach in float32."""


def tokenised_sample(store: Store, workspace: Workspace, count: int) -> tuple[Ids, Offsets, FastTokenizer]:
    """Tokenise some of a store's texts, evenly spread over its table, with the store's prompt."""
    tokenizer = FastTokenizer(Path(on_this_machine(store.model).path), store.max_length)
    _, texts = sample_of(workspace, store.texts, count)
    return *tokenizer([store.prompt + text for text in texts]), tokenizer


def lowest_cosine(first_NE: Vectors, second_NE: Vectors) -> float:
    """Return the lowest cosine of corresponding rows; NaN if a vector is not finite, or dimensions differ."""
    if first_NE.shape != second_NE.shape:
        return float("nan")
    one_NE, other_NE = first_NE.astype(np.float64), second_NE.astype(np.float64)
    lengths_N = np.linalg.norm(one_NE, axis=1) * np.linalg.norm(other_NE, axis=1)
    return float(((one_NE * other_NE).sum(axis=1) / np.maximum(lengths_N, 1e-30)).min())


def least_cosine(of_torch: float, compute: str) -> float:
    """Return the cosine to PyTorch's float32 vectors that a runtime must reach.

    In bfloat16 rounding is not the runtime's fault: it may be twice as far away as PyTorch itself, whose
    lowest cosine is ``of_torch``.
    """
    return FLOOR if compute == "float32" else min(FLOOR, 1.0 - 2.0 * (1.0 - of_torch))


class Unfit(BadInput):
    """A runtime that cannot compute a teacher's vectors; the message has no remedy."""


def require_agreement(store: Store, found: float, of_torch: float) -> None:
    """Refuse a runtime that computes something else than PyTorch, by lowest cosines to PyTorch in float32.

    ``found`` is that of the runtime's vectors, ``of_torch`` that of PyTorch's own in the store's precision.

    Raises:
        Unfit: The cosine is too low, or not a number.
    """
    least = least_cosine(of_torch, store.compute)
    if not found >= least:
        raise Unfit(
            f"the vectors of the runtime {store.runtime} must have a cosine of at least {least:.5f} to "
            f"PyTorch's, but one has {found:.5f}."
        )


_ROOM = 24
"""Tokens that a compared text has beside its prompt: longer ones are cut, and cost nothing."""
_LONG = f"The river begins here. {'A model of it goes on and on. ' * 12}At its end is the sea, 0 to 9."
_TEXTS = {
    "its modules": ("The river.", "z", "a model of the river, longer than others", "1, 2, 3"),
    "do_lower_case": ("UPPER Case And lower case", "a model of THE RIVER"),
    "its tokenizer's normaliser": ("Ünïcödé, 漢字 and a 🙂", "a tab\tand  blanks "),
    "truncation_side, or the maximum length": (_LONG, " ".join(reversed(_LONG.split()))),
}
"""By the setting that a difference points to."""


def require_stock(stock: Any, store: Store, encoder: Callable[[Store], Encode], device: str) -> None:
    """Refuse a model whose vectors in a store would not be those of stock sentence-transformers.

    Both read a dozen texts in float32: with the store's prompt, and some with each of the model's own.

    Raises:
        BadInput: A cosine is below `FLOOR`, or the dimensions differ; it names the likely setting.
    """
    local = on_this_machine(store.model)
    whole = FastTokenizer(Path(local.path), store.max_length)
    prompts = list(dict.fromkeys([store.prompt, *vars(prompts_of(store.model)).values()]))
    room = _ROOM + max(whole.prefix_length(prompt) if prompt else 0 for prompt in prompts)
    short = replace(store, max_length=min(store.max_length, room))
    tokenizer, texts = FastTokenizer(Path(local.path), short.max_length), _texts(whole.added_tokens())
    with _cut(stock, short.max_length):
        for number, prompt in enumerate(prompts):
            read = Forward(
                encoder(replace(short, prompt=prompt)),
                tokenizer.pad_id,
                default_batch_tokens(device, 1),
                device=device,
                quick=False,
            )
            named = [pair for pair in texts if not number or pair[1] == _LONG]
            given = [text for _, text in named]
            theirs_NE = np.asarray(stock.encode(given, prompt=prompt, show_progress_bar=False))
            ours_NE = read(*tokenizer([prompt + text for text in given]))
            _require_same(store.model, prompt, named, ours_NE, theirs_NE)


def _texts(added: list[str]) -> list[tuple[str, str]]:
    """The compared texts with the setting that each points to, plain ones first."""
    chosen = [*added[:1], *added[-2:]]
    with_added = [f"the river {token} of the model" for token in dict.fromkeys(chosen)]
    named = {**_TEXTS, "its added tokens": tuple(with_added)}
    return [(setting, text) for setting, given in named.items() for text in given]


@contextlib.contextmanager
def _cut(stock: Any, max_length: int) -> Iterator[None]:
    """Cut a stock model's texts at a length for a block."""
    of_table = hasattr(stock.tokenizer, "enable_truncation")
    before = stock.tokenizer.truncation if of_table else stock[0].max_seq_length
    cut_texts(stock, max_length)
    try:
        yield
    finally:
        if not of_table:
            stock[0].max_seq_length = before
        elif before:
            stock.tokenizer.enable_truncation(**before)
        else:
            stock.tokenizer.no_truncation()


def _require_same(
    model: Model,
    prompt: str,
    named: list[tuple[str, str]],
    ours_NE: Vectors,
    theirs_NE: Vectors,
) -> None:
    name = model.name or model.path
    if ours_NE.shape != theirs_NE.shape:
        raise BadInput(
            f"a store of {name} must have the dimensions that stock sentence-transformers gives, "
            f"{theirs_NE.shape[1]}, but would have {ours_NE.shape[1]}. Look at its modules.json."
        )
    cosines = [lowest_cosine(*pair) for pair in zip(ours_NE[:, None], theirs_NE[:, None], strict=True)]
    for (setting, text), cosine in zip(named, cosines, strict=True):
        if not cosine >= FLOOR:
            setting = "include_prompt" if prompt else setting
            shown = text if len(text) < 40 else f"{text[:40]}…"
            raise BadInput(
                f"the vectors in a store of {name} must be those of stock sentence-transformers (cosine >= "
                f"{FLOOR}), but that of {shown!r} after the prompt {prompt!r} has {cosine:.4f}. It is "
                f"probably due to {setting}, a setting of its folder that is not supported here."
            )
