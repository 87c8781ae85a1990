"""Extraction of all docstrings of the installed packages, cleaned and split by module; runs on the driver."""

import contextlib
import importlib.metadata
import importlib.util
import multiprocessing
import os
import platform
import signal
import sysconfig
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from stillhouse.core.artifacts import Workspace
from stillhouse.core.machine import cores, script_left_out
from stillhouse.corpora.pydocs.docstrings import docstrings, paragraphs
from stillhouse.corpora.pydocs.prose import outline, readable, sentences
from stillhouse.corpora.tables import write_texts
from stillhouse.values.data import TextTable

STANDARD_LIBRARY = "python"
PACKAGES = tuple(
    (
        "numpy scipy pandas sklearn torch matplotlib transformers optuna ray mlflow sentence_transformers "
        "datasets pyarrow networkx sympy mpmath PIL sqlalchemy pydantic huggingface_hub tokenizers fontTools "
        "narwhals aiohttp jinja2 requests urllib3 flask werkzeug fsspec joblib setuptools alembic click rich "
        "filelock safetensors cryptography starlette fastapi gunicorn docker git skops packaging cloudpickle "
        "dill smart_open wrapt jsonschema tqdm psutil graphene graphql opentelemetry nupunkt faiss"
    ).split()
)
SKIPPED_FOLDERS = frozenset(
    "tests test testing _vendor vendored externals third_party thirdparty thirdparty_files _thirdparty "
    "site-packages dist-packages __pycache__ idlelib lib2to3 pydoc_data turtledemo node_modules".split()
)
LARGEST_FILE = 2_000_000
WORTH_PROCESSES, MOST_PROCESSES = 500, 8
"""Number of files from which several processes are faster, and the most processes to use."""
LEAST_PASSAGE, MOST_PASSAGE = 8, 128
_OF_ONE = 3
"""Sentences of one docstring in a glimpse."""
HELD_OUT = {"test": 10, "dev": 10}
"""Split to its percentage of the groups of modules."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Package:
    """A folder of sources, with the name that imports it and the version of its distribution."""

    name: str
    version: str
    folder: Path


@dataclass(slots=True)
class Document:
    """The readable sentences of a docstring: its first one, "" if that is not readable, and the others."""

    query: str
    body: list[str]


FileContent = tuple[list[tuple[bytes, Document | None]], str]
"""The docstrings of a file by key, and the error that ended reading it ("" without error)."""


@dataclass
class _Split:
    """The texts of a split; ``passages`` starts with the answers to ``queries``, row by row."""

    sentences: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    passages: list[str] = field(default_factory=list)


def installed_packages() -> list[Package]:
    """Find the installed packages of the fixed list, and the standard library, without importing them."""
    found = [
        Package(STANDARD_LIBRARY, platform.python_version(), Path(sysconfig.get_paths()["stdlib"])),
    ]
    distributions = importlib.metadata.packages_distributions()
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        for folder in list(spec.submodule_search_locations or [])[:1] if spec else []:
            known = distributions.get(name, [])
            version = importlib.metadata.version(known[0]) if known else "unknown"
            found.append(Package(name, version, Path(folder)))
    return found


def split_of(group: str) -> str:
    """Choose the split of a group of modules by the hash of its name."""
    place = int.from_bytes(blake2b(group.encode(), digest_size=8).digest()) % 100
    for split, share in HELD_OUT.items():
        if place < share:
            return split
        place -= share
    return "train"


def extract(
    workspace: Workspace, packages: Sequence[Package], progress: Progress | None
) -> dict[str, TextTable]:
    """Write sentences, queries and passages of each split; no text of a held-out split is in another split.

    Row i of ``<split>_queries`` is answered by row i of ``<split>_passages``; later passages answer no query.
    """
    documents, skipped = _read(packages, progress)
    origin = {"packages": {package.name: package.version for package in packages}, "skipped": dict(skipped)}
    tables, foreign = {}, set[str]()
    for split in (*HELD_OUT, "train"):
        held, outlines = _assemble(documents[split], foreign)
        foreign |= outlines
        for name, texts in vars(held).items():
            label = f"pydocs-{split}-{name}-all"
            table = write_texts(workspace, label, texts, deduplicate=False, origin=origin)
            tables[f"{split}_{name}"] = table
    return tables


def glimpse(packages: Sequence[Package], count: int) -> list[str]:
    """Read up to ``count`` sentences from files that are spread over the packages, not from all of them."""
    files = [path for package in packages for path in _sources(package.folder)]
    files.sort(key=lambda path: blake2b(str(path).encode(), digest_size=8).digest())
    found: dict[str, None] = {}
    for path in files:
        if len(found) >= count:
            break
        for _, document in _read_file(path)[0]:
            found.update(dict.fromkeys([document.query, *document.body][:_OF_ONE] if document else []))
        found.pop("", None)
    return list(found)[:count]


def _read(
    packages: Sequence[Package], progress: Progress | None
) -> tuple[dict[str, list[Document]], Counter[str]]:
    files = [(package, path) for package in packages for path in _sources(package.folder)]
    documents: dict[str, list[Document]] = {split: [] for split in (*HELD_OUT, "train")}
    skipped: Counter[str] = Counter()
    seen: set[bytes] = set()
    with contextlib.closing(_read_files([path for _, path in files])) as found:
        for done, ((package, path), (keyed, fault)) in enumerate(zip(files, found, strict=True)):
            if progress is not None and done % 50 == 0:
                progress(done, len(files))
            new = {key: document for key, document in keyed if key not in seen}
            seen.update(new)
            documents[split_of(_group(package, path))].extend(filter(None, new.values()))
            if fault:
                skipped[fault] += 1
    if progress is not None:
        progress(len(files), len(files))
    return documents, skipped


def _read_files(paths: Sequence[Path]) -> Generator[FileContent, None, None]:
    """Read files in order; many files are read by one process per core."""
    processes = min(cores(), MOST_PROCESSES)
    if processes == 1 or len(paths) < WORTH_PROCESSES:
        yield from map(_read_file, paths)
        return
    fresh = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, fresh, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    try:
        with script_left_out():
            contents = pool.map(_read_file, paths, chunksize=20)
        yield from contents
    finally:
        pool.shutdown(cancel_futures=True)


def _read_file(path: Path) -> FileContent:
    keyed: list[tuple[bytes, Document | None]] = []
    try:
        keyed.extend(_documents(path))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # Some files of other packages are templates, or for another Python version or encoding.
        return keyed, type(error).__name__
    return keyed, ""


def _sources(folder: Path) -> Iterator[Path]:
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        for name in sorted(files):
            path = Path(base, name)
            if name.endswith(".py") and not name.endswith("_pb2.py") and path.is_file():
                yield path


def _group(package: Package, path: Path) -> str:
    """Group the modules of a folder, which are similar; top-level modules of Python form their own groups."""
    relative = path.relative_to(package.folder)
    alone = package.name == STANDARD_LIBRARY and len(relative.parts) == 1
    return "/".join((package.name, *(relative.parts if alone else relative.parts[:-1])))


def _documents(path: Path) -> Iterator[tuple[bytes, Document | None]]:
    """Yield a key for every docstring, and its readable part."""
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError("too large")
    source = path.read_bytes()
    if b'"""' not in source and b"'''" not in source:
        return
    for docstring in docstrings(source):
        key = blake2b(docstring.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        lead, rest = paragraphs(docstring)
        opening = sentences(lead) if lead else []
        query = opening[0] if opening and readable(opening[0]) else ""
        following = [*opening[1 if query else 0 :], *(text for part in rest for text in sentences(part))]
        body = [sentence for sentence in following if readable(sentence)]
        yield key, Document(query, body) if query or following else None


def _assemble(documents: Iterable[Document], foreign: set[str]) -> tuple[_Split, set[str]]:
    """Collect the texts of a split except those with an outline in an earlier split; return the outlines."""
    made, seen, within = _Split(), set[str](), set[str]()
    answers: dict[str, list[str]] = {}
    spare: list[str] = []
    for document in documents:
        query = "" if outline(document.query) in foreign else document.query
        body = [text for text in document.body if outline(text) not in foreign]
        for text in [query, *body] if query else body:
            if (key := outline(text)) not in seen:
                seen.add(key)
                made.sentences.append(text)
        passage = _passage(query, body)
        if passage and query:
            answers.setdefault(query, []).append(passage)
        elif passage:
            spare.append(passage)
        within.update(key for text in body if (key := outline(text)) != outline(query))
    _pair(made, answers, spare, within)
    return made, seen


def _passage(query: str, body: list[str]) -> str:
    """Join the sentences after the query, each once, as many as fit; "" if there are too few words."""
    chosen: dict[str, str] = {outline(query): ""}
    words = 0
    for text in body:
        length = text.count(" ") + 1
        if words + length > MOST_PASSAGE:
            break
        if (key := outline(text)) not in chosen:
            chosen[key] = text
            words += length
    return " ".join(text for text in chosen.values() if text) if words >= LEAST_PASSAGE else ""


def _pair(made: _Split, answers: Mapping[str, list[str]], spare: list[str], within: set[str]) -> None:
    """Keep the queries with a unique answer that are in no passage; other passages answer no query."""
    times = Counter(passage for passages in answers.values() for passage in set(passages))
    unused = []
    for query, passages in answers.items():
        alone = len(set(passages)) == 1 and times[passages[0]] == 1 and query not in passages[0]
        if alone and outline(query) not in within:
            made.queries.append(query)
            made.passages.append(passages[0])
        else:
            unused.extend(passages)
    made.passages.extend(dict.fromkeys([*unused, *spare]))
