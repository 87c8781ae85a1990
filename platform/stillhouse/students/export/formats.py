"""The forms in which a student can be exported, and the check of each in its own runtime.

``sentence-transformers``  a folder of stock modules; tied layers unrolled, narrow word vectors multiplied out
``onnx``                   a graph with its tokenizer, for onnxruntime and the ONNX backend of
                           sentence-transformers
``onnx-int8``              the same with 8-bit weights
``compact``                tied layers stored once, word vectors factorised; only this package reads it

A student states itself which of them it has, and its modules (`stillhouse.core.types.Exportable`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stillhouse.core.errors import BadInput, require
from stillhouse.core.model_folder import read_folder
from stillhouse.core.types import Exportable
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.compact import read_compact, write_compact
from stillhouse.students.export.folder_modules import COMPACT, FORMATS, ONNX, ONNX_INT8, STOCK, UNTIED
from stillhouse.students.export.onnx import check_onnx, export_onnx, require_extra
from stillhouse.students.export.sentence_transformers import (
    by_role,
    check_parity,
    export_student,
    same_vectors,
)

__all__ = ["FORMATS", "why_not", "write_format"]

_INT8 = {"minimum": 0.95, "stretch": 0.1}
"""The deviation that 8 bits may cause before it counts as an error."""


def why_not(student: object, form: str) -> str:
    """Say why a student cannot be exported in one of `FORMATS`; empty if it can.

    A student that is not `Exportable` has the ONNX forms alone.
    """
    foreign = {STOCK: f"stock modules cannot express {type(student).__name__}", COMPACT: UNTIED}
    reason = student.why_not(form) if isinstance(student, Exportable) else foreign.get(form, "")
    if reason or form not in (ONNX, ONNX_INT8):
        return reason
    try:
        require_extra()
    except BadInput as missing:
        return str(missing)
    return ""


def write_format(form: str, encoder: StudentEncoder, folder: Path, texts: Sequence[str]) -> float:
    """Write an encoder's student in one of `FORMATS`, and compare the two on some texts, at least one.

    Returns:
        The smallest cosine.

    Raises:
        BadInput: The student does not have the form, the folder holds something other than such an export,
            or the export gives different vectors.
    """
    require(form in FORMATS, f"format in {FORMATS}", format=form)
    student: Any = encoder.student
    reason = why_not(student, form)
    if reason:
        raise BadInput(
            f"the student must have the form {form}, but: {reason.rstrip('.')}.{_others(student, form)}"
        )
    prompts = encoder.prompts
    arguments = student, student.tokenizer.path, encoder.max_length, folder, prompts
    match form:
        case "onnx":
            export_onnx(*arguments)
            return check_onnx(encoder, folder, texts, prompts=prompts)
        case "onnx-int8":
            export_onnx(*arguments, int8=True)
            return check_onnx(encoder, folder, texts, **_INT8, prompts=prompts)
        case "compact":
            write_compact(*arguments)
            compact, max_length = read_compact(folder)
            read = StudentEncoder(compact, folder, max_length, prompts=read_folder(folder).prompts)
            pairs = zip(by_role(read, texts, prompts), by_role(encoder, texts, prompts), strict=True)
            return min(same_vectors(*pair, texts, minimum=0.9999) for pair in pairs)
    export_student(*arguments)
    return check_parity(encoder, folder, texts, prompts=prompts)


def _others(student: object, form: str) -> str:
    """Name the forms that the student has, as a remedy."""
    forms = [other for other in FORMATS if other != form and not why_not(student, other)]
    return f" It has the forms {', '.join(forms)}: give one of them with --format." if forms else ""
