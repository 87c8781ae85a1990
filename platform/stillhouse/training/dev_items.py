"""The items of the dev figure that selects, beside the checkpoint that they selected."""

import json
from pathlib import Path

from stillhouse.core.artifacts import read_json, write_atomically
from stillhouse.evaluation.items import Items, as_data, items_from

_FILE = "dev_items.json"


def keep_items(folder: Path, figure: float, items: Items) -> None:
    """Keep the items of an evaluation, if its figure is the best of its stage so far."""
    file = folder / _FILE
    if not file.exists() or figure > read_json(file)["figure"]:
        write_atomically(file, json.dumps({"figure": figure, "items": as_data(items)}).encode())


def items_of(folder: Path, figure: float) -> Items | None:
    """Read the items of the checkpoint with this figure; None if the figure has none, or others were kept."""
    file = folder / _FILE
    kept = read_json(file) if file.exists() else None
    return items_from(kept["items"]) if kept and kept["figure"] == figure else None
