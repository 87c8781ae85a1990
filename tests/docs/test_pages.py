"""Checks of the documentation: links, anchors and files exist, code compiles, and commands parse."""

import ast
import dataclasses
import functools
import importlib.util
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
from rows import each_row

from stillhouse import __version__
from stillhouse.cli.main import parser
from stillhouse.experiments.fields import experiment_of, fields
from stillhouse.methods import known_methods, load_method
from stillhouse.reports.preset_table import presets_page
from stillhouse.search.experiment_file import load_base
from stillhouse.sweeps.checks import check_plans, search_space

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "platform" / "stillhouse"
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
ROOMS = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
TOP = (
    "platform",
    "docs",
    "tests",
    "jobs",
    "clusters",
    "search_spaces",
    "benchmarks",
    "faults",
    "fuzz",
    "requirements",
    ".ci",
)

FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
INLINE = re.compile(r"`([^`\n]+)`")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def module_at(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def site_hooks() -> ModuleType:
    return module_at(DOCS / "site_hooks.py")


def generated() -> dict[Path, str]:
    """Pages of the site that are generated rather than stored in docs/, with their text."""
    hooks = site_hooks()
    pages = {DOCS / "reference" / f"{name}.md": text for name, text in hooks.reference_pages().items()}
    pages |= {DOCS / f"{path.stem}.md": hooks.notebook_page(path) for path in DOCS.glob("*.ipynb")}
    moved = {name: ROOT / f"{name.upper()}.md" for name in ("changelog", "contributing")}
    return pages | {DOCS / f"{name}.md": path.read_text() for name, path in moved.items()}


def slug(heading: str) -> str:
    """The anchor that GitHub and the site give to a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")


def prose(text: str) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", text)


def anchors(path: Path) -> set[str]:
    text = path.read_text() if path.exists() else generated()[path]
    return {slug(heading) for heading in HEADING.findall(prose(text))}


def commands(text: str) -> Iterator[str]:
    """Every command line that starts with `stillhouse`, in blocks and in the running text."""
    for language, block in FENCE.findall(text):
        if language in ("", "sh"):
            for line in re.sub(r"\\\n\s*", " ", block).splitlines():
                name, _, rest = line.strip().removeprefix(".venv/bin/").partition(" ")
                if name == "stillhouse":
                    yield rest
    for code in INLINE.findall(prose(text)):
        if code.startswith("stillhouse ") and code != "stillhouse COMMAND":
            yield code.removeprefix("stillhouse ")


def paths(text: str) -> Iterator[str]:
    """Every word of a page that names a file of this repository."""
    blocks = [
        re.sub(r"\A# \S+\n", "", block) for _, block in FENCE.findall(text)
    ]  # The name of a new file need not exist.
    for code in [*INLINE.findall(prose(text)), *blocks]:
        for word in re.split(r"[\s,;()'\"=]+", code):
            head, slash, _ = word.partition("/")
            placeholder = re.search(r"[*<>…{]|(?<![A-Za-z.])[A-Z]{2,}(?![A-Za-z_])", word)
            if slash and head in {*TOP, *ROOMS} and not placeholder:
                yield word.rstrip(".:/")


def exists(word: str) -> bool:
    """Return whether `methods/ibkd.py`, `losses/hsic`, `losses/hsic.HSIC` or `tests/docs` exists."""
    base = ROOT if word.split("/")[0] in TOP else PACKAGE
    if (base / word).exists() or (base / f"{word}.py").exists():
        return True
    module, _, name = word.rpartition(".")
    return bool(module) and (base / f"{module}.py").exists() and name in defined(base / f"{module}.py")


def defined(path: Path) -> set[str]:
    body = ast.parse(path.read_text()).body
    named = {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assigned = {
        target.id
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return named | assigned


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


every_page = each_row("page", PAGES)


@every_page
def test_links_resolve(page: Path) -> None:
    for target in LINK.findall(prose(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        assert path.exists() or path in generated(), f"{target} leads nowhere"
        if path.is_relative_to(DOCS) and not page.is_relative_to(DOCS):
            assert path.exists(), f"{target} is a page of the site only"
        if anchor:
            assert anchor in anchors(path), f"{target}: no such heading, only {sorted(anchors(path))}"


@every_page
def test_python_compiles(page: Path) -> None:
    for language, block in FENCE.findall(page.read_text()):
        if language == "python":
            compile(block, name(page), "exec")


@every_page
def test_commands_parse(page: Path) -> None:
    for command in commands(page.read_text()):
        words = shlex.split(re.sub(r"(--\S+ )?…", "", command), comments=True)
        if len(words) == 1:
            words.append("--help")
        try:
            parser().parse_args(["1" if word in ("N", "K") else word for word in words])
        except SystemExit as error:
            assert error.code == 0, f"stillhouse {command}: exit code {error.code}"
        settings = [word.partition("=")[0] for before, word in pairwise(words) if before == "--set"]
        allowed = set(fields())
        if words[0] in ("train", "sweep") and words[1] in known_methods():
            allowed |= {field.name for field in dataclasses.fields(load_method(words[1]).HyperParameters)}
        elif not all("." in name for name in settings):
            continue
        assert set(settings) <= allowed, f"stillhouse {command}"


@every_page
def test_files_exist(page: Path) -> None:
    for word in paths(page.read_text()):
        assert exists(word), f"{word} does not exist"


@every_page
def test_make_targets_exist(page: Path) -> None:
    text = page.read_text()
    blocks = [line for _, block in FENCE.findall(text) for line in block.splitlines()]
    codes = [*INLINE.findall(prose(text)), *blocks]
    allowed = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for code in codes:
        if match := re.match(r"make ((?:[A-Z]+=\S+ )*)([a-z-]+)\b", code):
            assert match[2] in allowed, f"{code}: the Makefile has no such target"


def test_the_extractions_are_not_empty() -> None:
    """Each extraction sees a page's content; an empty list would let everything pass."""
    text = "[x](y.md#z) `losses/hsic.HSIC`, `losses/nothing.py`\n\n```\nstillhouse store ls  # all\n```\n"
    assert list(commands(text)) == ["store ls  # all"]
    assert [exists(word) for word in paths(text)] == [True, False]
    assert not list(paths("`losses/NAME.py`, `tests/test_NAME.py`, `tests/*.py`"))
    assert LINK.findall(prose(text)) == ["y.md#z"]
    assert slug("A `b`, and C: d") == "a-b-and-c-d"


def test_the_picture_shows_the_numbers_in_the_text() -> None:
    """Every figure of the overview stands under "Measured", or is the mean of figures there."""
    measured = (DOCS / "evaluation.md").read_text().partition("## Measured")[2].replace(" ", "")
    averages = {
        "78.49": ("72.37", "80.60", "75.59", "85.39"),
        "78.10": ("72.61", "79.93", "75.46", "84.40"),
        "83.81": ("76.31", "82.76", "92.37"),
        "83.64": ("75.97", "82.71", "92.24"),
    }
    for line in (DOCS / "figures" / "overview.csv").read_text().splitlines()[1:]:
        for value in line.rsplit(",", 2)[1:]:
            parts = averages.get(value, (value,))
            assert float(value) == pytest.approx(sum(map(float, parts)) / len(parts), abs=0.006)
            assert all(part in measured for part in parts), f"{value} is not in docs/evaluation.md"


@each_row("page", ["results", "one_sweep", "benchmarks", "faults", "release"])
def test_a_page_of_measurements_is_of_this_version_or_says_that_it_is_not(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text()
    measured = re.search(r"\b[Ss]tillhouse (\d+\.\d+\.\d+)\b", text)
    assert measured, "a page of measurements names the version that was measured, as in Stillhouse 1.2.3"
    assert measured[1] == __version__ or f"Not yet run on {__version__}." in text


def test_the_rooms_are_those_of_the_layers() -> None:
    """The table of rooms has every room of the package, on the level that the test of the layers gives it."""
    text = (DOCS / "architecture.md").read_text()
    listed = {
        room: int(level)
        for level, room in re.findall(r"^\| (\d+) \| `(\w+)(?:/|\.py)` \|", text, re.MULTILINE)
    }
    levels = module_at(ROOT / "tests" / "test_layers.py").LEVELS
    assert listed == {room: level for level, rooms in enumerate(levels) for room in rooms}


@every_page
def test_experiment_files_in_pages_parse(page: Path, tmp_path: Path) -> None:
    """Blocks of YAML that begin with a method are experiment files with a search space."""
    for language, block in FENCE.findall(page.read_text()):
        text = re.sub(r"\A# \S+\n", "", block)
        if language != "yaml" or not text.startswith("method: ") or text.startswith("method: huber"):
            continue
        path = tmp_path / "experiment.yaml"
        path.write_text(text)
        method = load_method(text.splitlines()[0].removeprefix("method: "))
        space = search_space(method, path, section="continuous", sampler="tpe", scheduler="asha", fixed={})
        assert space.domains
        check_plans(method, experiment_of(load_base(path).experiment), space.probes(), "paper")


def test_the_page_of_presets_is_what_the_methods_say() -> None:
    written = (DOCS / "presets.md").read_text(encoding="utf-8")
    assert written == presets_page(), "run `stillhouse presets --markdown > docs/presets.md`"
