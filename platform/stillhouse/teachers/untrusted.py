"""Checks of a model's folder before anything in it is loaded: its links, its modules, its weights."""

from pathlib import Path

from stillhouse.core.errors import BadInput
from stillhouse.core.json_text import parse_json
from stillhouse.core.model_folder import Module

_LONGEST_HEADER = 100_000_000
"""Bytes of the longest header that safetensors itself accepts."""
_OWN_MODULES = "sentence_transformers."


def check_links(folder: Path) -> None:
    """Refuse symbolic links that lead out of a model's folder.

    In the cache of the Hugging Face hub the files of a snapshot are links into the same repository's blobs,
    which is allowed.

    Raises:
        BadInput: There is such a link, or one that leads nowhere.
    """
    root = folder.resolve()
    home = root.parent.parent if root.parent.name == "snapshots" else root
    for path in root.rglob("*"):
        if path.is_symlink() and not (path.exists() and path.resolve().is_relative_to(home)):
            raise BadInput(
                f"a model's folder must not hold links that lead out of it, but {path} leads to "
                f"{path.readlink()}. Copy the file into the folder."
            )


def check_module(folder: Path, module: Module) -> None:
    """Refuse a module outside of the folder, and one that would bring code along.

    Raises:
        BadInput: It is such a module.
    """
    described = folder / "modules.json"
    if ".." in module.path.parts or not module.path.is_relative_to(folder):
        raise BadInput(
            f"each module of a model must lie in its folder, but {described} names {str(module.path)!r}. "
            "Copy the module into the folder, and name it there."
        )
    if not module.type.startswith(_OWN_MODULES):
        raise BadInput(
            f"each module of a model must be one of sentence-transformers' own, but {described} names "
            f"{module.type!r}, code of another origin, which is never run. Give a model without it."
        )


def check_weights(path: Path) -> None:
    """Refuse a safetensors file whose header is too long, no JSON, or does not cover the file.

    Only the header is read. It is eight bytes with its length, then JSON with the place of each tensor.

    Raises:
        BadInput: The file is no complete safetensors file.
    """
    problem = _problem(path)
    if problem:
        raise BadInput(
            f"{path} must be a complete safetensors file, but {problem}. Download or export the model again."
        )


def _problem(path: Path) -> str:
    """Say what is wrong with a safetensors file; empty if nothing is."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if len(start) < 8:
            return f"it has {size} bytes"
        length = int.from_bytes(start, "little")
        if start.startswith(b"version "):
            return "it is a pointer of Git LFS to the file"
        if length > min(_LONGEST_HEADER, size - 8):
            return f"it states a header of {length:,} bytes, and has {size:,}"
        header = file.read(length)
    try:
        tensors = {name: each for name, each in parse_json(header).items() if name != "__metadata__"}
        ends = [int(each["data_offsets"][1]) for each in tensors.values()]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError):
        return "its header does not say where the tensors are"
    stated = 8 + length + max(ends, default=0)
    return "" if stated == size else f"its tensors end at byte {stated:,}, and the file at {size:,}"
