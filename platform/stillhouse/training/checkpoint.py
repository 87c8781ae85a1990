"""Checkpoints: one file with everything that determines the rest of a run, written atomically."""

import contextlib
import hashlib
import random
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stillhouse.core.artifacts import remove_leftovers, replacing
from stillhouse.core.errors import BadInput

FOLDER = "checkpoints"


def save(folder: Path, step: int, state: Mapping[str, Any]) -> None:
    """Write the checkpoint of one step atomically. It holds tensors and plain values, no pickles."""
    with replacing(path_of(folder, step)) as temporary:
        torch.save(dict(state), temporary)


def load(folder: Path, step: int) -> dict[str, Any]:
    """Read the checkpoint of one step into CPU memory.

    Raises:
        BadInput: The file is missing or damaged.
    """
    path = path_of(folder, step)
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError) as error:
        raise BadInput(
            f"{path} must be a complete checkpoint, but reading it gave: {error}. "
            f"Remove it: training continues from the previous one, or from the start."
        ) from error
    return state


def steps(folder: Path) -> list[int]:
    """List the steps that have a checkpoint, in order."""
    return sorted(int(path.stem.removeprefix("step-")) for path in (folder / FOLDER).glob("step-*.pt"))


def path_of(folder: Path, step: int) -> Path:
    """Return the file of the checkpoint of a step."""
    return folder / FOLDER / f"step-{step:09d}.pt"


def prune(folder: Path, keep: Collection[int]) -> None:
    """Remove all checkpoints except those of the given steps, and the leftovers of a killed writer."""
    for step in steps(folder):
        if step not in keep:
            path_of(folder, step).unlink(missing_ok=True)
    remove_leftovers(folder / FOLDER)


def rng_state() -> dict[str, Any]:
    """Return the state of every random generator of this process, as tensors and plain values."""
    version, internal, gauss = random.getstate()
    kind, key, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "python": [version, list(internal), gauss],
        "numpy": [kind, torch.from_numpy(np.array(key, dtype=np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Restore the state of every random generator."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, key, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, key.numpy().astype(np.uint32), position, has_gauss, cached))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def seed_everything(seed: int) -> None:
    """Seed every random generator of this process."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


@contextlib.contextmanager
def rng_untouched() -> Iterator[None]:
    """Restore the random generators after the block, whatever it draws."""
    state = rng_state()
    try:
        yield
    finally:
        set_rng_state(state)


def weights_sha256(weights: Mapping[str, Tensor]) -> str:
    """Hash names, types, shapes and values; independent of the device and of the file format."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        value = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write weights as safetensors, atomically; tensors that share memory are written separately."""
    from safetensors.torch import save_file

    separate = {name: value.detach().cpu().clone().contiguous() for name, value in weights.items()}
    with replacing(path) as temporary:
        save_file(separate, temporary)


def load_weights(module: nn.Module, path: Path) -> None:
    """Load safetensors into a module that has exactly these weights.

    Raises:
        BadInput: The file does not hold the weights of this module.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        module.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise BadInput(f"{path} must hold the weights of {type(module).__name__}, but: {error}") from error
