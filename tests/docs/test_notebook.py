"""The notebook runs from its first cell to its last on tiny data."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOK = ROOT / "docs" / "first_student.ipynb"

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("nbclient", "ipykernel")),
    reason="running the notebook needs the extra docs: make docs",
)


def test_the_notebook_runs(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    nouns = "cat dog sat mat house river water sun moon red green blue".split()
    corpus = tmp_path / "words.txt"
    corpus.write_text("\n".join(f"the {first} and the {second}" for first in nouns for second in nouns))
    small = {
        "TEACHER": str(tiny_model),
        "CORPUS": str(corpus),
        "SENTENCES": 0,
        "PAIRS": 0,
        "DISTIL": 64,
        "FINETUNE": 64,
        "HELD_OUT": 20,
        "ROOT": str(tmp_path / "runs"),
    }
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cell = next(cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    given = {name.strip() for line in cell.source.splitlines() for name in line.partition("=")[0].split(",")}
    assert given == set(small), "the test replaces every parameter of the notebook"
    cell.source = "\n".join(f"{name} = {value!r}" for name, value in small.items())

    monkeypatch.setenv("PYTHONPATH", str(ROOT / "platform"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    manager = AsyncKernelManager()
    arguments = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    manager._kernel_spec = KernelSpec(argv=arguments, display_name="tests", language="python")
    NotebookClient(
        notebook, km=manager, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()

    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert "agreement_spearman_cosine" in printed
    assert "lowest cosine between the exported and the trained student: 1.0" in printed
    assert (tmp_path / "runs" / "first-student" / "modules.json").exists()


def test_stored_outputs_name_no_machine() -> None:
    """The site shows these outputs."""
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    text = "".join("".join(output.get("text", [])) for cell in cells for output in cell["outputs"])
    assert "lowest cosine" in text
    assert "/home/" not in text and "/root/" not in text and "/tmp/" not in text
