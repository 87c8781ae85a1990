"""The site builds completely and loads nothing from other hosts."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("mkdocs", "mkdocstrings", "material")),
    reason="the site needs the extra docs: make docs",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_pages_and_figures_are_there(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").exists()
    for name in ("changelog.html", "contributing.html", "reference/losses.html", "figures/overview.png"):
        assert (site / name).exists()


def test_the_reference_has_arguments_and_shapes(site: Path) -> None:
    text = (site / "reference" / "losses.html").read_text()
    for word in ("stillhouse.losses.hsic.HSIC", "stillhouse.losses.contrastive.InfoNCE", "Parameters"):
        assert word in text
    assert len(list((site / "reference").glob("*.html"))) > 12


def test_nothing_is_fetched(site: Path) -> None:
    for page in site.rglob("*.html"):
        tags = re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text())
        fetched = [tag for tag in tags if re.search(r'(?:src|href)="?https?:', tag)]
        assert not [tag for tag in fetched if "canonical" not in tag], page
