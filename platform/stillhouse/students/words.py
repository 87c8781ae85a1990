"""Word vectors and seeded weights for the small students that read words.

A folder of words has ``tokenizer.json`` (a vocabulary of V words) and, if it has published vectors,
``model.safetensors`` with one tensor of V x d.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from stillhouse.core.errors import BadInput, require
from stillhouse.core.tensors import read_tensors
from stillhouse.values.data import Model


def word_embedding(words: Model, *, dim: int | None, trained: bool) -> nn.Embedding:
    """Build the embedding layer of a vocabulary; without published vectors it is normal, deviation 0.1.

    ``dim`` is d; None takes that of the folder's vectors, and 300 without any. Random vectors must be
    trained.

    Raises:
        BadInput: No vocabulary, vectors that are not one V x d tensor, or a different d from ``dim``.
    """
    folder = Path(words.path)
    size = _vocabulary_size(folder)
    vectors_VD = _vectors(folder, size)
    if vectors_VD is None:
        if not trained:
            raise BadInput(
                f"Words without published vectors must be trained, and {words.name or words.path} has no "
                "vectors. Set train_words, or give a folder with a model.safetensors."
            )
        vectors_VD = torch.randn(size, 300 if dim is None else dim) * 0.1
    require(
        dim is None or dim == vectors_VD.shape[1],
        "word_dim = dimension of the published vectors",
        word_dim=dim,
        published=vectors_VD.shape[1],
    )
    return nn.Embedding(size, vectors_VD.shape[1], _weight=vectors_VD, _freeze=not trained)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run a block whose random numbers depend on the seed alone; the global random state is unchanged."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _vocabulary_size(folder: Path) -> int:
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise BadInput(f"A folder of words must have a tokenizer.json, but {folder} has none.")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise BadInput(f"{path} must be a tokenizer, but loading it gave: {error}") from None
    # Ids may have gaps, and rows are looked up by id.
    return 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)


def _vectors(folder: Path, size: int) -> Tensor | None:
    path = folder / "model.safetensors"
    if not path.is_file():
        return None
    tensors: dict[str, Tensor] = read_tensors(path)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(shapes) != 1 or any(len(shape) != 2 or shape[0] != size for shape in shapes.values()):
        raise BadInput(
            f"Word vectors must be one tensor with a row for each of the {size} words of the vocabulary, but "
            f"{path} holds {shapes}."
        )
    return next(iter(tensors.values())).float()
