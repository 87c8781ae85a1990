"""The notebook is short, and runs from its first cell to its last on tiny data."""

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

    small = {"TEACHER": str(tiny_model), "FILES": "[a-c]*.py", "ROOT": str(tmp_path / "runs")}
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

    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output.get("text", "") for output in outputs)
    pages = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert "lowest cosine to the trained student 1.0" in printed
    assert len(pages) == 1 and "agreement_spearman_cosine" in pages[0] and "data:image/png" in pages[0]
    assert (tmp_path / "runs" / "first-student" / "modules.json").exists()


def test_stored_outputs_name_no_machine() -> None:
    """The site shows these outputs."""
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert sum(bool(line.strip()) for cell in cells for line in cell["source"]) <= 15
    text = "".join("".join(output.get("text", [])) for cell in cells for output in cell["outputs"])
    assert "lowest cosine" in text
    assert "/home/" not in text and "/root/" not in text and "/tmp/" not in text
