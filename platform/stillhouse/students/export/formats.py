"""What a student may be exported as, and the proof, in the runtime of each form, that it is the same model.

``sentence-transformers``  a folder of stock modules; tied layers unrolled, narrow word vectors multiplied out
``onnx``                   a graph with its tokenizer, for onnxruntime
``onnx-int8``              the same with weights of eight bits
``compact``                tied layers once, word vectors factorised; only this package reads it
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stillhouse.core.errors import BadInput, require
from stillhouse.students.bilstm import BiLSTMStudent
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.compact import read_compact, write_compact
from stillhouse.students.export.onnx import check_onnx, export_onnx, require_extra
from stillhouse.students.export.sentence_transformers import check_parity, export_student, same_vectors
from stillhouse.students.recurrent import RecurrentStudent
from stillhouse.students.static import StaticStudent

FORMATS = ("sentence-transformers", "onnx", "onnx-int8", "compact")
_INT8 = {"minimum": 0.95, "stretch": 0.1}
"""What eight bits may cost before it is taken for a fault."""


def why_not(student: object, form: str) -> str:
    """Why a student cannot be exported in a form; empty where it can.

    Args:
        student: Of any class.
        form: One of `FORMATS`.
    """
    match form:
        case "sentence-transformers":
            return _not_stock(student)
        case "compact":
            tied = isinstance(student, RecurrentStudent)
            return "" if tied else "no layers are tied in this student: its own weights are as small"
    try:
        require_extra()
    except BadInput as missing:
        return str(missing)
    return ""


def write_format(
    form: str, encoder: StudentEncoder, folder: Path, texts: Sequence[str], *, card: str = ""
) -> float:
    """Write an encoder's student in a form, and compare the two over some texts.

    Args:
        form: One of `FORMATS`.
        encoder: What was evaluated.
        folder: The place of the export.
        texts: At least one.
        card: Markdown of the model card, of a sentence-transformers folder.

    Returns:
        The smallest cosine.

    Raises:
        BadInput: No such form of this student, or a folder that holds something other than such an export.
        RuntimeError: The export gives other vectors.
    """
    require(form in FORMATS, f"format in {FORMATS}", format=form)
    student: Any = encoder.student
    reason = why_not(student, form)
    if reason:
        raise BadInput(
            f"the student must have the form {form}, but: {reason.rstrip('.')}.{_others(student, form)}"
        )
    known = student, student.tokenizer.path, encoder.max_length, folder
    match form:
        case "onnx":
            export_onnx(*known)
            return check_onnx(encoder, folder, texts)
        case "onnx-int8":
            export_onnx(*known, int8=True)
            return check_onnx(encoder, folder, texts, **_INT8)
        case "compact":
            write_compact(*known)
            read, max_length = read_compact(folder)
            small = StudentEncoder(read, folder, max_length)
            return same_vectors(small.encode(texts), encoder, folder, texts, minimum=0.9999)
    export_student(*known, card=card)
    return check_parity(encoder, folder, texts)


def _others(student: object, form: str) -> str:
    """The remedy: the forms that there are."""
    found = [other for other in FORMATS if other != form and not why_not(student, other)]
    return f" It has the forms {', '.join(found)}: give one of them with --format." if found else ""


def _not_stock(student: object) -> str:
    if isinstance(student, BiLSTMStudent):
        if student.pooling in ("mean", "max"):
            return ""
        return "it pools the last state of each side, and stock modules take both sides of one word"
    if isinstance(student, RecurrentStudent) and not student.repeats:
        return "it applies no layers, and is a stage on the way to one that does"
    if isinstance(student, StaticStudent) or hasattr(student, "stock"):
        return ""
    return f"stock modules cannot express {type(student).__name__}"
