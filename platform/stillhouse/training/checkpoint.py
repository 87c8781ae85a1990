"""Checkpoints: one file with everything that determines the rest of a run, written atomically."""

import contextlib
import errno
import hashlib
import random
import re
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stillhouse.core.artifacts import CHECKPOINTS, remove_leftovers, replacing
from stillhouse.core.console import warn
from stillhouse.core.errors import BadInput, Hindered, blocked
from stillhouse.core.integrity import moved, put_aside
from stillhouse.core.tensors import read_tensors


def save(folder: Path, step: int, state: Mapping[str, Any]) -> None:
    """Write the checkpoint of one step atomically. It holds tensors and plain values, no pickles."""
    with replacing(path_of(folder, step)) as temporary:
        torch.save(dict(state), temporary)


def load(folder: Path, step: int) -> dict[str, Any]:
    """Read the checkpoint of one step into CPU memory, after comparing its bytes with their checksums.

    Raises:
        Hindered: The file is missing or damaged.
    """
    state, problem = _read(folder, step)
    if problem:
        raise Hindered(
            f"{path_of(folder, step)} must be a complete checkpoint of this stage, but it {problem}. Run the "
            "same command again: it puts this file aside and continues from an earlier checkpoint."
        )
    return state


def heal(folder: Path) -> None:
    """Put damaged checkpoints aside, so that training continues from the newest one that can be trusted."""
    before: int | None = None
    for step, problem in problems(folder).items():
        if not problem:
            before = step
            continue
        path = path_of(folder, step)
        aside = moved(put_aside(path))
        earlier = "from the start" if before is None else f"from step {before}"
        warn(f"{path} {problem}. {aside} Training continues {earlier} or a later checkpoint.")


def problems(folder: Path) -> dict[int, str]:
    """Say what is wrong with each checkpoint of a stage, by its step; empty if nothing is.

    A checkpoint cannot be trusted either if one that it refers to as a best one is gone or damaged: training
    that continued from it could not be finished.

    Raises:
        Hindered: The system does not let a file be read; it may be good.
    """
    found: dict[int, str] = {}
    for step in steps(folder):
        state, problem = _read(folder, step)
        good = {earlier for earlier, wrong in found.items() if not wrong}
        found[step] = problem or _missing_best(state, step, good)
    return found


def _read(folder: Path, step: int) -> tuple[dict[str, Any], str]:
    """Read a checkpoint; also return what is wrong with it, empty if nothing is."""
    path = path_of(folder, step)
    problem = damage_of_checkpoint(path)
    if problem:
        return {}, problem
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        return {}, "is missing"
    except OSError as error:
        raise blocked(path, error) from None
    except Exception as error:  # A damaged pickle raises errors of any kind.
        return {}, f"is no checkpoint ({type(error).__name__})"
    if not isinstance(state, dict):
        return {}, f"is no checkpoint, but holds a {type(state).__name__}"
    return state, ""


def damage_of_checkpoint(path: Path) -> str:
    """Say what is wrong with a checkpoint; torch writes a checksum of every entry, but does not read it."""
    try:
        with zipfile.ZipFile(path) as archive:
            entry = archive.testzip()
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError, zlib.error) as error:
        return f"is damaged ({error})"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        if error.errno in (None, errno.EINVAL):  # a seek to where a damaged directory points
            return f"is damaged ({error})"
        raise blocked(path, error) from None
    return f"is damaged: the bytes of {entry} have changed" if entry else ""


def _missing_best(state: Mapping[str, Any], step: int, good: Collection[int]) -> str:
    """Say which of the checkpoints that this one refers to is gone."""
    try:
        best = [int(each) for _, each in state["progress"]["best"]]
    except (KeyError, TypeError, ValueError) as error:
        return f"is no checkpoint ({type(error).__name__})"
    gone = [each for each in best if each != step and each not in good]
    return f"needs the checkpoint of step {gone[0]}, which is gone or damaged" if gone else ""


def steps(folder: Path) -> list[int]:
    """List the steps that have a checkpoint, in order."""
    return sorted(map(step_of, (folder / CHECKPOINTS).glob("step-*.pt")))


def step_of(path: Path) -> int:
    """Return the step of a checkpoint by the name of its file; -1 if it is no checkpoint."""
    return int(path.stem.removeprefix("step-")) if re.fullmatch(r"step-\d+\.pt", path.name) else -1


def path_of(folder: Path, step: int) -> Path:
    """Return the file of the checkpoint of a step."""
    return folder / CHECKPOINTS / f"step-{step:09d}.pt"


def prune(folder: Path, keep: Collection[int]) -> None:
    """Remove all checkpoints except those of the given steps, and the leftovers of a killed writer."""
    for step in steps(folder):
        if step not in keep:
            path_of(folder, step).unlink(missing_ok=True)
    remove_leftovers(folder / CHECKPOINTS)


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
    weights = read_tensors(path)
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise BadInput(f"{path} must hold the weights of {type(module).__name__}, but: {error}") from error
