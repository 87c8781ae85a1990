"""The compact form of a recurrent student: its tied weights stored once, its word vectors factorised.

Stock libraries cannot read this form; `export_student` writes the one that they can. The folder holds
``config.json`` (the base's shape), ``recurrent.json`` (how it is used), ``model.safetensors`` and the
tokenizer's files.
"""

from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import read_json, write_json
from stillhouse.core.errors import require
from stillhouse.core.roles import NO_PROMPTS, Prompts
from stillhouse.students.backbone import quiet, with_layers
from stillhouse.students.export.folder_modules import write_tokenizer
from stillhouse.students.export.sentence_transformers import replacing_folder, write_settings
from stillhouse.students.recurrent import RecurrentStudent
from stillhouse.students.transformer import load_weights
from stillhouse.values.data import Model

DESCRIPTION = "recurrent.json"
WEIGHTS = "model.safetensors"
FORMAT = 1


def write_compact(
    student: RecurrentStudent,
    tokenizer_path: str | Path,
    max_length: int,
    folder: str | Path,
    prompts: Prompts = NO_PROMPTS,
) -> None:
    """Write a student's compact form; the folder appears complete, and an earlier export is replaced.

    The student may be in any mode and on any device, and stays as it is.

    Raises:
        BadInput: No tokenizer files, more tokens than the model has positions, a folder that holds something
            else, or a full disk.
    """
    from safetensors.torch import save_file

    target, positions = Path(folder), student.max_tokens
    rule = "max_length <= positions of the model"
    require(max_length <= positions, rule, max_length=max_length, positions=positions)
    with replacing_folder(target, earlier=is_compact) as temporary:
        # At least as deep as the unit, whatever the repeats: reading it back requires that many layers.
        depth = tuple(range(student.unit)) * max(1, student.repeats)
        with quiet():
            with_layers(student.backbone.config, depth).save_pretrained(temporary)
        write_tokenizer(Path(tokenizer_path), temporary, max_length)
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in student.state_dict().items()}
        save_file(state, temporary / WEIGHTS, {"format": "pt"})
        if prompts:
            write_settings(temporary, "cosine", prompts)
        shape = {
            "unit": student.unit,
            "repeats": student.repeats,
            "bottleneck": student.bottleneck,
            "pooling": student.pooling,
            "normalize": student.normalize,
            "projection": student.projection and student.dim,
        }
        write_json(temporary / DESCRIPTION, {"format": FORMAT, "max_length": max_length, **shape})


def read_compact(folder: str | Path) -> tuple[RecurrentStudent, int]:
    """Read a student in its compact form: the student in evaluation mode, and its tokens per text.

    Raises:
        BadInput: No such folder, another format, or weights that do not fit.
    """
    described: dict[str, Any] = read_json(Path(folder) / DESCRIPTION)
    found = described.pop("format", None)
    require(found == FORMAT, f"format = {FORMAT}", folder=str(folder), format=found)
    max_length = int(described.pop("max_length"))
    base = Model(sha256="", name=Path(folder).name, path=str(folder))
    student = RecurrentStudent(base, pretrained=False, **described)
    load_weights(student, Path(folder) / WEIGHTS, new=())
    return student.eval(), max_length


def is_compact(folder: Path) -> bool:
    """Return whether a folder is in the compact form."""
    return (folder / DESCRIPTION).is_file()
