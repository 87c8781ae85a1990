"""A student as a folder that stock sentence-transformers loads, and the proof that it gives the same vectors.

The files carry the names and keys that every release of sentence-transformers since 2.0 reads.
"""

import contextlib
import errno
import inspect
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from torch import Tensor, nn

from stillhouse.core.artifacts import write_json
from stillhouse.core.errors import full_disk, require
from stillhouse.core.tokenizing import lower_cases
from stillhouse.core.types import Encoder, FloatArray
from stillhouse.students.backbone import quiet
from stillhouse.students.bilstm import BiLSTMStudent
from stillhouse.students.export.modules import copy_tokenizer, write_bilstm, write_ending, write_pooling
from stillhouse.students.export.static import write_static
from stillhouse.students.static import StaticStudent

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Exportable(Protocol):
    """A student that sentence-transformers can hold: an encoder, pooling, a projection and a norm.

    Attributes:
        dim: D.
        hidden_size: H.
        max_tokens: Positions.
        pooling: ``mean``, ``cls`` or ``max``.
        normalize: Vectors have length 1.
    """

    dim: int
    hidden_size: int
    max_tokens: int
    pooling: str
    normalize: bool

    @property
    def projection(self) -> nn.Linear | None:
        """H → D, or None."""
        ...

    @property
    def activation(self) -> Callable[[Tensor], Tensor] | None:
        """What follows the projection: tanh, or None."""
        ...

    def stock(self) -> "PreTrainedModel":
        """The encoder as stock transformers builds it."""
        ...


def export_student(
    student: Exportable | BiLSTMStudent | StaticStudent,
    tokenizer_path: str | Path,
    max_length: int,
    folder: str | Path,
    *,
    card: str = "",
) -> None:
    """Write a student as a sentence-transformers folder with safetensors weights.

    The folder appears whole: it is written beside its place and renamed; one that is there is replaced.

    Args:
        student: Any mode, any device; unchanged.
        tokenizer_path: Folder whose tokenizer files are copied as they are.
        max_length: Tokens a text, special ones included.
        folder: The place of the export.
        card: Markdown of the model card; none is written when empty.

    Raises:
        BadInput: No tokenizer files, a length past the model's positions, a student that stock modules cannot
            express, a folder that holds something other than an export, or a full disk.
    """
    require(
        max_length <= student.max_tokens,
        "max_length <= positions of the model",
        max_length=max_length,
        positions=student.max_tokens,
    )
    require(
        not Path(folder).exists()
        or (Path(folder) / "modules.json").is_file()
        or not any(Path(folder).iterdir()),
        "an export replaces nothing but an export",
        folder=str(folder),
        remedy="Give an empty or a new folder.",
    )
    with replacing_folder(Path(folder)) as temporary:
        source = Path(tokenizer_path)
        if isinstance(student, BiLSTMStudent):
            written = write_bilstm(student, source, max_length, temporary)
        elif isinstance(student, StaticStudent):
            written = write_static(student, source, max_length, temporary)
        else:
            written = _write_transformer(student, source, max_length, temporary)
        modules = [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{name}"}
            for index, (path, name) in enumerate(written.items())
        ]
        write_json(temporary / "modules.json", modules)
        write_json(temporary / "config_sentence_transformers.json", folder_settings())
        if card:
            (temporary / "README.md").write_text(card, encoding="utf-8")


def check_parity(
    encoder: Encoder, folder: str | Path, texts: Sequence[str], minimum: float = 0.9999
) -> float:
    """Compare an encoder with an exported folder, as stock sentence-transformers loads it, in float32.

    Args:
        encoder: What was evaluated.
        folder: What was exported.
        texts: At least one.
        minimum: The cosine that every pair of vectors must reach.

    Returns:
        The smallest cosine.

    Raises:
        RuntimeError: A cosine is smaller, a length differs by over a hundredth, or the dimensions differ.
    """
    from sentence_transformers import SentenceTransformer

    with quiet():
        stock = SentenceTransformer(str(folder), device="cpu", local_files_only=True).float()
        exported_ND = np.asarray(stock.encode(list(texts), show_progress_bar=False))
    return same_vectors(exported_ND, encoder, folder, texts, minimum)


def same_vectors(
    exported_ND: FloatArray,
    encoder: Encoder,
    folder: str | Path,
    texts: Sequence[str],
    minimum: float,
    stretch: float = 0.01,
) -> float:
    """Compare the vectors that an export gave with those of what was evaluated; see `check_parity`."""
    evaluated_ND = np.asarray(encoder.encode(texts), dtype=np.float64)
    if exported_ND.shape != evaluated_ND.shape:
        raise RuntimeError(
            f"The export {folder} must give vectors of the evaluated shape {evaluated_ND.shape}, but gave "
            f"{exported_ND.shape}."
        )
    exported_ND = exported_ND.astype(np.float64)
    lengths = np.linalg.norm(exported_ND, axis=1), np.linalg.norm(evaluated_ND, axis=1)
    cosines = (exported_ND * evaluated_ND).sum(axis=1) / (lengths[0] * lengths[1])
    longest = float(np.abs(lengths[0] / lengths[1] - 1).max())
    worst = int(cosines.argmin())
    if not (cosines[worst] >= minimum and longest <= stretch):
        raise RuntimeError(
            f"The export {folder} must give the evaluated vectors (cosine >= {minimum}, length within "
            f"{stretch:.0%}), but the smallest cosine is {cosines[worst]:.6f}, at {texts[worst][:60]!r}, and "
            f"lengths differ by up to {longest:.2%}. Do not publish this folder."
        )
    return float(cosines[worst])


def _write_transformer(
    student: Exportable, tokenizer_path: Path, max_length: int, folder: Path
) -> dict[str, str]:
    """Write a transformer and the modules after it; returns folder to module, in order."""
    backbone = student.stock()
    with quiet():
        backbone.save_pretrained(folder)
    copy_tokenizer(tokenizer_path, folder)
    settings: dict[str, Any] = {"max_seq_length": max_length, "do_lower_case": lower_cases(tokenizer_path)}
    if "add_pooling_layer" in inspect.signature(type(backbone)).parameters:
        # Else loading makes a random, unused pooler head and warns about it.
        settings["model_args"] = {"add_pooling_layer": False}
    write_json(folder / "sentence_bert_config.json", settings)
    write_pooling(folder / "1_Pooling", student.hidden_size, student.pooling)
    return {"": "Transformer", "1_Pooling": "Pooling"} | write_ending(student, folder, before=2)


def folder_settings(similarity: str = "cosine") -> dict[str, Any]:
    """What a folder says of the versions that wrote it, and of how its vectors are compared."""
    from importlib.metadata import version

    names = {
        "sentence_transformers": "sentence-transformers",
        "transformers": "transformers",
        "pytorch": "torch",
    }
    return {
        "__version__": {key: version(package) for key, package in names.items()},
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": similarity,
    }


@contextlib.contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Give an empty folder that takes the place of ``folder`` when the block ends without error."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    outdated = folder.with_name(f".{folder.name}.{os.getpid()}.old")
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
    """Bring a file to the disk, readable as the folder is: some writers leave it to the owner alone."""
    if path.is_file():
        path.chmod(path.parent.stat().st_mode & 0o666)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
