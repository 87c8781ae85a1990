"""Programs in a model card, run as they stand."""

import re
from typing import Any

import numpy as np


def run_snippets(markdown: str) -> list[dict[str, Any]]:
    """Run every Python block, each on its own; return the names that each has defined."""
    found = []
    for block in re.findall(r"```python\n(.*?)```", markdown, re.DOTALL):
        names: dict[str, Any] = {}
        exec(compile(block, "the card's program", "exec"), names)
        assert f"(2, {np.asarray(names['vectors']).shape[1]})" in block, "the shape in the comment is right"
        found.append(names)
    return found
