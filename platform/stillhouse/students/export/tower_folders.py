"""Two towers as two folders that stock sentence-transformers loads, and the joiner of their vectors.

Each of the folders (``claims/`` and ``documents/``) holds all modules of its tower. With a bilinear
joiner, W is the claims' last layer, so the inner product of the two vectors is the score, and an index of
inner products serves it. Any other joiner is not an inner product: it is saved next to them as
``joiner.safetensors``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from stillhouse.core.artifacts import write_json
from stillhouse.core.errors import BadInput
from stillhouse.core.types import SidedModel, StockModule
from stillhouse.losses.pair_head import Joiner
from stillhouse.students.export.folder_modules import Dense
from stillhouse.students.export.sentence_transformers import replacing_folder, write_modules

DESCRIPTION, JOINER = "towers.json", "joiner.safetensors"
SIDES = ("claims", "documents")


def export_towers(student: Any, joiner: Joiner, max_length: int, folder: str | Path) -> None:
    """Write both towers of an `Exportable` student with two ``export_sides``; the folder appears complete.

    Raises:
        BadInput: A norm, which no layer after it can be multiplied into, pooling that no stock module does,
            or a folder that holds something other than an export.
    """
    target, (first, second) = Path(folder), student.export_sides
    if student.normalize:
        raise BadInput(
            "Towers can only be exported without a norm, but these were trained with normalize=True."
        )
    towers: dict[str, Any] = {
        side: student.tower(side) if isinstance(student, SidedModel) else student for side in (first, second)
    }
    modules: dict[str, Sequence[StockModule]] = {side: part.stock_modules() for side, part in towers.items()}
    weight: Tensor = joiner.layer.weight  # type: ignore[assignment]
    joined = (Dense(_layer(weight), nn.Identity()),) if joiner.kind == "bilinear" else ()
    tokenizer = Path(student.tokenizer.path)
    with replacing_folder(target, earlier=is_towers) as temporary:
        for side, more in ((first, joined), (second, ())):
            (temporary / side).mkdir()
            write_modules([*modules[side], *more], temporary / side, tokenizer, max_length, similarity="dot")
        if not joined:
            save_file({"weight": weight.detach().cpu().contiguous()}, temporary / JOINER, {"format": "pt"})
        write_json(temporary / DESCRIPTION, {"joiner": joiner.kind, "max_length": max_length})


def is_towers(folder: Path) -> bool:
    """Return whether a folder holds two towers."""
    return (folder / DESCRIPTION).is_file()


def _layer(weight: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight = nn.Parameter(weight.detach().cpu().float())
    return layer
