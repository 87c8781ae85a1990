"""FEVER's claims with the pages that support or refute them, as far as the pages are available.

Thorne et al., NAACL 2018, as used by the paper on retrieval distillation (Shakeri et al., §2.1): the relevant
documents of a claim are its evidence pages, whatever its label.

Claims are JSON: one object per line, as published by FEVER, or a list of objects. The pages of a claim are in
``evidence`` (``[[[annotation, id, page, sentence], …], …]``) or, by name alone, in ``evidence_pages``.
Pages are FEVER's JSON lines (``id``, ``text``) or WikiExtractor's ``<doc … title="…">`` blocks.
"""

import hashlib
import html
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.errors import BadInput, require
from stillhouse.corpora.reading.cleaning import clean, dedup_key
from stillhouse.corpora.reading.rows import numbered_lines, published_table

SPLITS = ("train", "dev", "test")
SPLIT_BY = ("claim", "page")
CLAIM_FILES = (
    "train.jsonl",
    "fever_labelled_dev.json",
    "paper_dev.jsonl",
    "shared_task_dev.jsonl",
    "dev.jsonl",
)
"""Files of claims; all of them that a folder has are read, in this order."""
PAGE_FILES = ("wiki-pages", "wikipages.docs.txt")
"""Files or folders of pages; the first one that a folder has is read."""
DEV, TEST = 20 / 175, 10 / 175
"""Shares of the claims; the paper splits 145 000 / 20 000 / 10 000."""

_BRACKETS = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "-COLON-": ":",
}
_DOC = re.compile(r'<doc\b[^>]*?\btitle="([^"]*)"[^>]*>(.*?)</doc>', re.DOTALL)


@dataclass(frozen=True)
class Claim:
    """A claim and the rows of its evidence pages, ascending, all of which are available."""

    id: int
    text: str
    gold: tuple[int, ...]


@dataclass(frozen=True)
class Fever:
    """Claims by split, and the documents that they are about.

    Attributes:
        documents: Title and text of each document in one line; the titles differ.
        splits: ``train``, ``dev`` and ``test`` to claims in the order of the file.
        summary: What was read, kept and dropped, in one line.
        unlabelled: Texts of the dropped claims that the hash of their text puts into the training split:
            without evidence, or without all its pages. None of them equals another claim.
    """

    documents: list[str]
    splits: Mapping[str, list[Claim]]
    summary: str
    unlabelled: Sequence[str]


def read_fever(claims: Path | Sequence[Path], pages: Path, *, split_by: str = "claim") -> Fever:
    """Read claims and pages, and keep the claims whose gold pages are all available.

    Equal claims, up to case and closing punctuation, are merged into the first, with the gold pages of all.

    Args:
        claims: A file, or several; a claim of several files must be the same in all.
        pages: A file, or a folder of files, which are read in the order of their names.
        split_by: With ``claim``, the hash of a claim's text decides, so its split does not change when other
            claims are added or removed. Claims about one page are then in train and in test, and a scorer
            that ignores the claim does well by knowing the pages that claims are about. With ``page``, claims
            that share a gold page, directly or through other claims, stay together, so no gold page of train
            is one of test (in FEVER's own splits, no page that a claim was written from is shared). The first
            title of the linked pages decides.

    Raises:
        BadInput: If a file is missing or has another format, files disagree about a claim, or no claim has
            all its pages.
    """
    files = [claims] if isinstance(claims, Path) else claims
    require(split_by in SPLIT_BY, f"split_by in {SPLIT_BY}", split_by=split_by)
    dropped: Counter[str] = Counter()
    rows, documents = _documents(_pages(pages), dropped)
    read_pages = len(rows) + sum(dropped.values())
    bare: list[str] = []
    records = [_records(file) for file in files]
    _refuse_disagreement(records)
    joined = _joined([one for each in records for one in each], dropped, bare)
    usable = []
    for one in joined:
        if one.titles <= rows.keys():
            usable.append(Claim(one.id, one.text, tuple(sorted(rows[each] for each in one.titles))))
        else:
            dropped["claims with an evidence page that is missing"] += 1
            bare.append(one.text)
    lost = ", ".join(f"{count} {reason}" for reason, count in dropped.items()) or "nothing"
    if not usable:
        named = ", ".join(map(str, files))
        raise BadInput(
            f"at least one claim of {named} must have all its evidence pages in {pages}, but none has; "
            f"dropped: {lost}."
        )
    titles = list(rows)
    keys = [claim.text for claim in usable] if split_by == "claim" else _linked(usable, titles)
    splits: dict[str, list[Claim]] = {name: [] for name in SPLITS}
    for claim, key in zip(usable, keys, strict=True):
        splits[_split(key)].append(claim)
    others = {dedup_key(claim.text) for claim in usable}
    free = {dedup_key(text): text for text in bare if dedup_key(text) not in others}
    unlabelled = [text for text in free.values() if _split(text) == "train"]
    kept = {claim.text for claim in usable}
    used = Counter(one.file.name for one in joined if one.text in kept)
    parts = [
        f"{used[file.name]} of {len(each)} claims of {file.name}"
        for file, each in zip(files, records, strict=True)
    ]
    summary = (f"{'; '.join(parts)} used; " if len(parts) > 1 else "") + (
        f"{sum(map(len, records))} claims and {read_pages} pages read; kept "
        f"{', '.join(f'{len(claims)} {name}' for name, claims in splits.items())} claims and "
        f"{len(documents)} documents; dropped {lost}"
    )
    return Fever(documents, splits, summary, unlabelled)


def page_title(page: str) -> str:
    """Convert FEVER's name of a page to its title: ``Soul_Food_-LRB-film-RRB-`` to ``Soul Food (film)``."""
    for name, bracket in _BRACKETS.items():
        page = page.replace(name, bracket)
    return clean(page.replace("_", " "))


def _documents(pages: Iterator[tuple[str, str]], dropped: Counter[str]) -> tuple[dict[str, int], list[str]]:
    """Return the row of every title, and the documents."""
    rows: dict[str, int] = {}
    documents: list[str] = []
    for title, text in pages:
        if not title or not text:
            dropped["pages without title or text"] += 1
        elif title in rows:
            dropped["pages with a title seen before"] += 1
        else:
            rows[title] = len(documents)
            documents.append(f"{title} {text}")
    return rows, documents


@dataclass
class _Evidence:
    """A claim's text, label and the titles of its pages, merged over equal claims, and the first's file."""

    file: Path
    id: int
    text: str
    label: str
    titles: set[str]


def _records(path: Path) -> list[_Evidence]:
    rows = published_table(path, "JSON").strict_rows()
    return [_evidence(record, path, place) for place, (_, record) in enumerate(rows, start=1)]


def _refuse_disagreement(files: Sequence[Sequence[_Evidence]]) -> None:
    """Refuse files that have another text or label for one of FEVER's numbers."""
    known: dict[int, _Evidence] = {}
    for claims in files:
        for claim in claims:
            other = known.get(claim.id, claim)
            require(
                other.file == claim.file or (other.text, other.label) == (claim.text, claim.label),
                "files of FEVER must agree about a claim",
                id=claim.id,
                files=[str(other.file), str(claim.file)],
                claims=[f"{each.label}: {each.text}" for each in (other, claim)],
                remedy="Leave the files of one release in the folder.",
            )
        known |= {claim.id: claim for claim in claims}


def _joined(claims: list[_Evidence], dropped: Counter[str], bare: list[str]) -> list[_Evidence]:
    found: dict[bytes, _Evidence] = {}
    for one in claims:
        if not one.titles:
            dropped["claims without evidence"] += 1
            bare.append(one.text)
        elif (earlier := found.setdefault(dedup_key(one.text), one)) is not one:
            earlier.titles |= one.titles
            dropped["claims equal to an earlier one"] += 1
    return list(found.values())


def _evidence(record: Any, path: Path, place: int) -> _Evidence:
    try:
        if "evidence_pages" in record:
            names = list(record["evidence_pages"])
        else:
            names = [part[2] for group in record["evidence"] for part in group if part[2] is not None]
        titles = {page_title(name) for name in names}
        return _Evidence(path, int(record["id"]), clean(record["claim"]), str(record["label"]), titles)
    except (KeyError, TypeError, IndexError, ValueError, OverflowError, AttributeError) as error:
        raise BadInput(
            f"{path} must have claims with id, claim, label and evidence (or evidence_pages), but claim "
            f"number {place} gave {type(error).__name__}: {error}."
        ) from None


def _linked(claims: list[Claim], titles: list[str]) -> list[str]:
    """Return for every claim the alphabetically first title of all the pages that it is linked with."""
    above: dict[str, str] = {}

    def first(title: str) -> str:
        while (upper := above.get(title, title)) != title:
            title = upper
        return title

    for claim in claims:
        heads = sorted({first(titles[row]) for row in claim.gold})
        above.update((head, heads[0]) for head in heads)
    return [first(titles[claim.gold[0]]) for claim in claims]


def _split(key: str) -> str:
    digest = hashlib.blake2b(dedup_key(key), digest_size=8, person=b"fever").digest()
    place = int.from_bytes(digest) / 2**64
    return "test" if place < TEST else "dev" if place < TEST + DEV else "train"


def _pages(path: Path) -> Iterator[tuple[str, str]]:
    """Read title and text of every page, one line each."""
    files = (
        sorted(file for file in path.iterdir() if not file.name.startswith(".")) if path.is_dir() else [path]
    )
    for file in files:
        lines = (line for _, line in numbered_lines(file))
        start = next((line.lstrip() for line in lines if line.strip()), "")
        if start.startswith("{"):
            for _, page in published_table(file, "JSON").strict_rows():
                if not {"id", "text"} <= page.keys():
                    raise BadInput(f"{file} must have pages with id and text, but has {str(page)[:60]}.")
                yield page_title(str(page["id"])), clean(str(page["text"]))
            continue
        text = start + "".join(lines)
        if "<doc " not in text:
            raise BadInput(f"{file} must have JSON lines or <doc> blocks, but starts with {text[:40]!r}.")
        for match in _DOC.finditer(text):
            title, body = clean(html.unescape(match[1])), match[2].strip()
            first, _, rest = body.partition("\n")
            # WikiExtractor repeats the title in the first line.
            yield title, clean(rest if clean(html.unescape(first)) == title else body)


def fever_files(root: str) -> tuple[list[Path], Path]:
    """Find the files of claims and the pages in a folder of FEVER.

    Raises:
        BadInput: If there is no such folder, or it lacks one of them.
    """
    folder = Path(root).expanduser()
    require(folder.is_dir(), "--claims must name a folder", claims=root)
    found = []
    for names, what in ((CLAIM_FILES, "claims"), (PAGE_FILES, "pages")):
        found.append([folder / name for name in names if (folder / name).exists()])
        rule = f"the folder of --claims must hold the {what} of FEVER: {' or '.join(names)}"
        there = sorted(part.name for part in folder.iterdir())
        require(bool(found[-1]), rule, claims=root, found=there[:6])
    return found[0], found[1][0]
