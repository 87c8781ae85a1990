"""Word vectors, and a few seeds: what small students that read words have in common.

A folder of words has ``tokenizer.json`` (a vocabulary of V words) and, where its vectors are published ones,
``model.safetensors`` with one tensor of V x d.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from stillhouse.core.errors import BadInput, require
from stillhouse.plan.data import Model


def word_embedding(words: Model, *, dim: int | None, trained: bool) -> nn.Embedding:
    """The vectors of a vocabulary as a layer; without published ones, normal with deviation 0.1.

    Args:
        words: The folder.
        dim: d. None takes that of the folder's vectors, and 300 without any.
        trained: Whether a stage changes the vectors. Random ones must be.

    Raises:
        BadInput: No vocabulary, vectors that are not one V x d tensor, or another d than asked for.
    """
    folder = Path(words.path)
    size = _vocabulary_size(folder)
    vectors_VD = _vectors(folder, size)
    if vectors_VD is None:
        require(
            trained,
            "words without published vectors are trained",
            words=words.name or words.path,
            train_words=trained,
            remedy="Set train_words, or give a folder with a model.safetensors.",
        )
        vectors_VD = torch.randn(size, 300 if dim is None else dim) * 0.1
    require(
        dim is None or dim == vectors_VD.shape[1],
        "word_dim is that of the published vectors",
        word_dim=dim,
        published=vectors_VD.shape[1],
    )
    return nn.Embedding(size, vectors_VD.shape[1], _weight=vectors_VD, _freeze=not trained)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """A block whose random numbers depend on the seed alone; the global random state is left as it was."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)


def run_lstm(lstm: nn.LSTM, states_BTH: Tensor, mask_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Run one LSTM layer over the real tokens alone, so that no padding reaches a state.

    It runs in the precision of its weights also under autocast: cuDNN's would run in float16, and lose small
    gradients.

    Args:
        lstm: One layer, batch first, in one direction or both.
        states_BTH: Inputs, padding on the right.
        mask_BT: 1 for a real token.

    Returns:
        A state for every token, (B, T, directions x units), zeros at padding; and the last state of each
        direction, side by side, (B, directions x units), zeros for a text without any token.
    """
    lengths_B = mask_BT.sum(dim=1)
    # A packed sequence has at least one step; the states of an empty text are wiped below.
    packed = nn.utils.rnn.pack_padded_sequence(
        states_BTH.to(next(lstm.parameters()).dtype),
        lengths_B.clamp(min=1).cpu(),
        batch_first=True,
        enforce_sorted=False,
    )
    with torch.autocast(states_BTH.device.type, enabled=False):
        outputs, (last_LBU, _) = lstm(packed)
    outputs_BTU, _ = nn.utils.rnn.pad_packed_sequence(
        outputs, batch_first=True, total_length=states_BTH.shape[1]
    )
    last_BU = last_LBU.transpose(0, 1).flatten(1)
    return (
        outputs_BTU.masked_fill(mask_BT.unsqueeze(-1) == 0, 0.0),
        last_BU.masked_fill(lengths_B.unsqueeze(-1) == 0, 0.0),
    )


def _vocabulary_size(folder: Path) -> int:
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    require(path.is_file(), "a folder of words has a tokenizer.json", folder=str(folder))
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise BadInput(f"{path} must be a tokenizer, but loading it gave: {error}") from None
    # Ids may have gaps, and a row is looked up by its id.
    return 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)


def _vectors(folder: Path, size: int) -> Tensor | None:
    from safetensors.torch import load_file

    path = folder / "model.safetensors"
    if not path.is_file():
        return None
    tensors: dict[str, Tensor] = load_file(path)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    require(
        len(shapes) == 1 and all(len(shape) == 2 and shape[0] == size for shape in shapes.values()),
        "word vectors are one tensor, with a row for every word of the vocabulary",
        tensors=shapes,
        words=size,
    )
    return next(iter(tensors.values())).float()
