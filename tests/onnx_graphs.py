"""ONNX graphs that tests write in less time."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from stillhouse.students.export import onnx as onnx_export


def trace(patch: pytest.MonkeyPatch) -> None:
    """Trace graphs, in a tenth of the time; those of the other exporter are in test_onnx_stock.py."""
    patch.setattr(onnx_export, "_export", onnx_export._trace)


def write_once(patch: pytest.MonkeyPatch, kept: Path) -> None:
    """Write one graph, which takes long, and copy it from then on: eight bits are made of the same one."""
    write = onnx_export.write_graph

    def copied(student: Any, file: Path, **settings: Any) -> None:
        if not kept.exists():
            write(student, kept, **settings)
        shutil.copyfile(kept, file)

    patch.setattr(onnx_export, "write_graph", copied)
