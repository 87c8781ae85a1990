"""Pages of the site that are generated: the reference, the changelog, CONTRIBUTING and the notebook.

MkDocs calls ``on_config`` and ``on_files`` when it builds the site. Every room of the package gets one page,
made from its docstrings, so a new module is documented without an edit here.
"""

import ast
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "platform" / "stillhouse"
NOTEBOOKS = ROOT / "docs"


def on_config(config: Any) -> Any:
    """Put the generated pages into the navigation, before the page about contributing."""
    nav: list[Any] = config["nav"]
    position = next(i for i, entry in enumerate(nav) if "Contributing" in entry)
    nav.insert(position, {"Reference": [{name: f"reference/{name}.md"} for name in reference_pages()]})
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        nav.insert(2, {notebook_title(notebook): f"{notebook.stem}.md"})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    pages = {f"reference/{name}.md": text for name, text in reference_pages().items()}
    pages["changelog.md"] = moved_into_docs((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    contributing = ROOT / "CONTRIBUTING.md"
    pages["contributing.md"] = moved_into_docs(contributing.read_text(encoding="utf-8"))
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        pages[f"{notebook.stem}.md"] = notebook_page(notebook)
    for uri, text in pages.items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to a notebook lead to its page."""
    return markdown.replace(".ipynb)", ".md)")


def reference_pages() -> dict[str, str]:
    """One page per room: its docstring, then every public module in it."""
    pages = {"stillhouse": public_page()}
    for room in sorted(path for path in PACKAGE.iterdir() if (path / "__init__.py").exists()):
        modules = sorted(room.rglob("*.py"))
        named = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in modules]
        kept = [name for name in named if not name.rsplit(".", 1)[-1].startswith("_")]
        summary = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
        pages[room.name] = "\n\n".join(
            [f"# `stillhouse.{room.name}`", summary, *(f"::: {name}" for name in kept), ""]
        )
    return pages


def public_page() -> str:
    """The page of the Python interface: the calls, then the values, each with its arguments."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    names: list[str] = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    parts = ["# `stillhouse`", ast.get_docstring(tree) or ""]
    for title, listed in (
        ("Calls", [name for name in names if name.islower()]),
        ("Values", [name for name in names if not name.islower()]),
    ):
        entry = "::: stillhouse.{}\n    options:\n      heading_level: 3\n      members: false"
        parts += [f"## {title}", *(entry.format(name) for name in listed)]
    return "\n\n".join(parts) + "\n"


def moved_into_docs(text: str) -> str:
    """Rewrite the links of a page that is outside ``docs/`` in the repository but inside it on the site."""
    return text.replace("](docs/", "](")


def notebook_title(path: Path) -> str:
    """Return the first heading of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    heading = "".join(cells[0]["source"]).splitlines()[0]
    return heading.lstrip("# ")


def notebook_page(path: Path) -> str:
    """Write a notebook as Markdown: code cells as blocks, after each what it printed or shows."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            shown = output.get("data", {})
            lines = output.get("text") or shown.get("text/plain") or []
            if "text/html" in shown:
                parts.append("".join(shown["text/html"]))
            elif lines:
                parts.append(f"```text\n{''.join(lines).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"
