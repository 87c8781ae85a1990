"""A student as a folder that stock sentence-transformers loads, and the check of its vectors."""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stillhouse.core.artifacts import write_json
from stillhouse.core.errors import BadInput, full_disk, require
from stillhouse.core.roles import NO_PROMPTS, PLAIN, ROLES, SETTINGS, Prompts
from stillhouse.core.types import Encoder, Exportable, FloatArray, StockModule, encode_as
from stillhouse.students.backbone import quiet


def export_student(
    student: Exportable,
    tokenizer_path: str | Path,
    max_length: int,
    folder: str | Path,
    prompts: Prompts = NO_PROMPTS,
) -> None:
    """Write a student as a sentence-transformers folder with safetensors weights.

    The folder appears complete: it is written next to its destination and renamed; an earlier export is
    replaced. The student may be in any mode and on any device, and stays as it is.

    Raises:
        BadInput: No tokenizer files, more tokens than the model has positions, a student that stock modules
            cannot express, a folder that holds something other than an export, or a full disk.
    """
    require(
        max_length <= student.max_tokens,
        "max_length <= positions of the model",
        max_length=max_length,
        positions=student.max_tokens,
    )
    with replacing_folder(Path(folder), earlier=is_stock) as temporary:
        modules = student.stock_modules()
        write_modules(modules, temporary, Path(tokenizer_path), max_length, prompts=prompts)


def is_stock(folder: Path) -> bool:
    """Return whether a folder is one of sentence-transformers with weights for torch."""
    return (folder / "modules.json").is_file() and not (folder / "onnx").is_dir()


def write_modules(
    modules: Sequence[StockModule],
    folder: Path,
    tokenizer_path: Path,
    max_length: int,
    similarity: str = "cosine",
    prompts: Prompts = NO_PROMPTS,
) -> None:
    """Write modules into a folder that exists, each into its place, and the list that loads them.

    The similarity by which vectors are to be compared is ``cosine`` or ``dot``.
    """
    listed = []
    for index, module in enumerate(modules):
        path = "" if module.at_root else f"{index}_{module.name}"
        module.write(folder / path, tokenizer_path, max_length)
        listed.append(
            {
                "idx": index,
                "name": str(index),
                "path": path,
                "type": f"sentence_transformers.models.{module.name}",
            }
        )
    write_json(folder / "modules.json", listed)
    write_settings(folder, similarity, prompts)


def check_parity(
    encoder: Encoder,
    folder: str | Path,
    texts: Sequence[str],
    minimum: float = 0.9999,
    prompts: Prompts = NO_PROMPTS,
) -> float:
    """Compare an encoder with an exported folder, as stock sentence-transformers loads it, in float32.

    There is at least one text. With prompts, the texts are compared in every role.

    Returns:
        The smallest cosine.

    Raises:
        BadInput: A cosine is below ``minimum``, a length differs by more than 1 %, or the dimensions differ.
    """
    from sentence_transformers import SentenceTransformer

    with quiet():
        stock: Any = SentenceTransformer(str(folder), device="cpu", local_files_only=True).float()
        read = by_role(stock, list(texts), prompts)
    pairs = zip(read, by_role(encoder, texts, prompts), strict=True)
    return min(same_vectors(theirs, ours, texts, minimum) for theirs, ours in pairs)


def by_role(encoder: Encoder, texts: Sequence[str], prompts: Prompts) -> list[FloatArray]:
    """Encode texts without a role and, if there are prompts, as queries and as documents."""
    roles = (PLAIN, *ROLES) if prompts else (PLAIN,)
    return [np.asarray(encode_as(encoder, role, texts)) for role in roles]


def same_vectors(
    exported_ND: FloatArray,
    evaluated_ND: FloatArray,
    texts: Sequence[str],
    minimum: float,
    stretch: float = 0.01,
) -> float:
    """Compare the vectors of an export with those of the evaluated encoder; see `check_parity`."""
    evaluated_ND = evaluated_ND.astype(np.float64)
    if exported_ND.shape != evaluated_ND.shape:
        raise BadInput(
            f"An export must give vectors of the evaluated shape {evaluated_ND.shape}, but gave "
            f"{exported_ND.shape}. Nothing is kept of it."
        )
    exported_ND = exported_ND.astype(np.float64)
    lengths = np.linalg.norm(exported_ND, axis=1), np.linalg.norm(evaluated_ND, axis=1)
    cosines = (exported_ND * evaluated_ND).sum(axis=1) / (lengths[0] * lengths[1])
    longest = float(np.abs(lengths[0] / lengths[1] - 1).max())
    worst = int(cosines.argmin())
    if not (cosines[worst] >= minimum and longest <= stretch):
        raise BadInput(
            f"An export must give the evaluated vectors (cosine >= {minimum}, length within {stretch:.0%}), "
            f"but the smallest cosine is {cosines[worst]:.6f}, at {texts[worst][:60]!r}, and lengths differ "
            f"by up to {longest:.2%}. Nothing is kept of it: give another --format."
        )
    return float(cosines[worst])


def write_settings(folder: Path, similarity: str, prompts: Prompts) -> None:
    """Write the versions that wrote a folder, its prompts, and how its vectors are compared."""
    from importlib.metadata import version

    names = {
        "sentence_transformers": "sentence-transformers",
        "transformers": "transformers",
        "pytorch": "torch",
    }
    named, default = prompts.exported()
    settings = {
        "__version__": {key: version(package) for key, package in names.items()},
        "prompts": named,
        "default_prompt_name": default,
        "similarity_fn_name": similarity,
    }
    write_json(folder / SETTINGS, settings)


@contextlib.contextmanager
def replacing_folder(folder: Path, *, earlier: Callable[[Path], bool]) -> Iterator[Path]:
    """Provide an empty folder that replaces ``folder`` when the block ends without an error.

    The destination is missing, empty, or an ``earlier`` export of the same form.

    Raises:
        BadInput: The folder holds something else, or the disk is full.
    """
    if folder.exists() and any(folder.iterdir()) and not earlier(folder):
        raise BadInput(
            f"An export replaces nothing but an export of its form, but {folder} holds something else. Give "
            "an empty or a new folder."
        )
    temporary, outdated = (folder.with_name(f".{folder.name}.{ending}") for ending in ("tmp", "old"))
    for leftover in (temporary, outdated):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for file in temporary.rglob("*"):
            _settle(file)
        if folder.exists():
            folder.rename(outdated)
        temporary.rename(folder)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise full_disk(folder) from error
        raise
    finally:
        for leftover in (temporary, outdated):
            shutil.rmtree(leftover, ignore_errors=True)


def _settle(path: Path) -> None:
    """Sync a file to the disk, readable as the folder is: some writers restrict it to the owner."""
    if path.is_file():
        path.chmod(path.parent.stat().st_mode & 0o666)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
