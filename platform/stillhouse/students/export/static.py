"""The modules of a sentence-transformers folder for a static student."""

from pathlib import Path

from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.students.export.modules import write_ending
from stillhouse.students.static import StaticStudent


def write_static(
    student: StaticStudent, tokenizer_path: Path, max_length: int, folder: Path
) -> dict[str, str]:
    """Write the table with its tokenizer, projection and norm; returns folder to module, in order.

    The tokenizer carries the length: StaticEmbedding has no setting for it.
    """
    from safetensors.torch import save_file

    FastTokenizer(tokenizer_path, max_length).write_static(folder / "tokenizer.json")
    table_VD = student.words.weight.detach().cpu().contiguous()
    save_file({"embedding.weight": table_VD}, folder / "model.safetensors", {"format": "pt"})
    return {"": "StaticEmbedding"} | write_ending(student, folder, before=1)
