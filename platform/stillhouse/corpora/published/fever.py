"""FEVER's claims with the pages that prove or refute them, as far as the pages are there.

Thorne et al., NAACL 2018, as the paper on retrieval distillation uses it (Shakeri et al., §2.1): a claim's
relevant documents are its evidence pages, whatever its label says of them.

Claims are JSON: one object a line, as FEVER publishes them, or a list of objects. The pages of a claim are in
``evidence`` (``[[[annotation, id, page, sentence], …], …]``) or, by name alone, in ``evidence_pages``.
Pages are FEVER's JSON lines (``id``, ``text``) or WikiExtractor's ``<doc … title="…">`` blocks.
"""

import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.errors import BadInput, require
from stillhouse.corpora.reading.sentences import clean, dedup_key

SPLITS = ("train", "dev", "test")
DEV, TEST = 20 / 175, 10 / 175
"""Shares of the claims: the paper splits 145 000 / 20 000 / 10 000."""

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
    """A claim whose relevant documents are all there.

    Attributes:
        id: FEVER's number.
        text: The claim.
        label: ``SUPPORTS`` or ``REFUTES``.
        gold: Rows of its evidence pages, rising.
    """

    id: int
    text: str
    label: str
    gold: tuple[int, ...]


@dataclass(frozen=True)
class Fever:
    """Claims by split, and the documents that they are about.

    Attributes:
        titles: Of the documents, none twice.
        documents: Title and text, one line each.
        splits: ``train``, ``dev`` and ``test`` to claims in the order of the file.
        read: Claims and pages that were read.
        dropped: What was left out, by reason, and how often.
    """

    titles: list[str]
    documents: list[str]
    splits: Mapping[str, list[Claim]]
    read: Mapping[str, int]
    dropped: Mapping[str, int]

    def summary(self) -> str:
        """One line: what was read, kept and dropped."""
        kept = ", ".join(f"{len(claims)} {name}" for name, claims in self.splits.items())
        lost = ", ".join(f"{count} {reason}" for reason, count in self.dropped.items()) or "nothing"
        return (
            f"{self.read['claims']} claims and {self.read['pages']} pages read; kept {kept} claims and "
            f"{len(self.documents)} documents; dropped {lost}"
        )


def read_fever(
    claims: Path,
    pages: Path,
    *,
    split_by: str = "claim",
    dev: float = DEV,
    test: float = TEST,
    max_words: int | None = None,
) -> Fever:
    """Read claims and pages; keep the claims whose gold pages are all there.

    Equal claims, whatever their case and closing, are joined into the first, with the gold pages of all.

    Args:
        claims: A file.
        pages: A file, or a folder of files, which are read by name.
        split_by: ``claim``: the hash of a claim's text decides, so its split does not change when others come
            or go. Claims about one page are then in train and in test, and a scorer that is blind to the
            claim does well by knowing the pages that claims are about. ``page``: claims that share a gold
            page, or are linked by others that do, stay together, so no gold page of train is one of test
            (FEVER's own splits share no page that a claim was written from). The first title of the linked
            pages decides.
        dev: About the share of the claims in ``dev``.
        test: About the share of the claims in ``test``.
        max_words: Words of a page's text that are kept; None keeps all. FEVER's own pages are introductions.

    Raises:
        BadInput: A file is missing or not in such a form, or no claim has all its pages.
    """
    require(0 <= dev < 1 and 0 <= test < 1 and dev + test < 1, "0 <= dev + test < 1", dev=dev, test=test)
    require(split_by in ("claim", "page"), "split_by in (claim, page)", split_by=split_by)
    require(max_words is None or max_words >= 1, "max_words >= 1", max_words=max_words)
    dropped: Counter[str] = Counter()
    rows, documents = _documents(_pages(pages), max_words, dropped)
    read_pages, records = len(rows) + sum(dropped.values()), _claims(claims)
    usable = list(_usable(_joined(records, claims, dropped), rows, dropped))
    require(
        bool(usable),
        "a claim has all its evidence pages",
        claims=str(claims),
        pages=str(pages),
        dropped=dict(dropped),
    )
    titles = list(rows)
    keys = [claim.text for claim in usable] if split_by == "claim" else _linked(usable, titles)
    splits: dict[str, list[Claim]] = {name: [] for name in SPLITS}
    for claim, key in zip(usable, keys, strict=True):
        splits[_split(key, dev, test)].append(claim)
    return Fever(titles, documents, splits, {"claims": len(records), "pages": read_pages}, dict(dropped))


def page_title(page: str) -> str:
    """The title of a page by FEVER's name for it: ``Soul_Food_-LRB-film-RRB-`` is ``Soul Food (film)``."""
    for name, bracket in _BRACKETS.items():
        page = page.replace(name, bracket)
    return clean(page.replace("_", " "))


def _documents(
    pages: Iterator[tuple[str, str]], max_words: int | None, dropped: Counter[str]
) -> tuple[dict[str, int], list[str]]:
    """The row of every title, and the documents."""
    rows: dict[str, int] = {}
    documents: list[str] = []
    for title, text in pages:
        if not title or not text:
            dropped["pages without title or text"] += 1
        elif title in rows:
            dropped["pages with a title seen before"] += 1
        else:
            rows[title] = len(documents)
            documents.append(f"{title} {' '.join(text.split(' ')[:max_words])}")
    return rows, documents


@dataclass
class _Evidence:
    """A claim's text, label and the titles of its pages, joined over equal claims."""

    id: int
    text: str
    label: str
    titles: set[str]


def _joined(records: list[Any], path: Path, dropped: Counter[str]) -> list[_Evidence]:
    found: dict[bytes, _Evidence] = {}
    for place, record in enumerate(records, start=1):
        one = _evidence(record, path, place)
        if not one.titles:
            dropped["claims without evidence"] += 1
        elif (earlier := found.setdefault(dedup_key(one.text), one)) is not one:
            earlier.titles |= one.titles
            dropped["claims equal to an earlier one"] += 1
    return list(found.values())


def _usable(claims: list[_Evidence], rows: Mapping[str, int], dropped: Counter[str]) -> Iterator[Claim]:
    for claim in claims:
        if claim.titles <= rows.keys():
            yield Claim(
                claim.id, claim.text, claim.label, tuple(sorted(rows[title] for title in claim.titles))
            )
        else:
            dropped["claims with an evidence page that is not there"] += 1


def _evidence(record: Any, path: Path, place: int) -> _Evidence:
    try:
        if "evidence_pages" in record:
            names = list(record["evidence_pages"])
        else:
            names = [part[2] for group in record["evidence"] for part in group if part[2] is not None]
        titles = {page_title(name) for name in names}
        return _Evidence(int(record["id"]), clean(record["claim"]), str(record["label"]), titles)
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise BadInput(
            f"{path} must hold claims with id, claim, label and evidence (or evidence_pages), but claim "
            f"number {place} gave {type(error).__name__}: {error}."
        ) from None


def _linked(claims: list[Claim], titles: list[str]) -> list[str]:
    """For every claim the first title, in alphabetical order, of all the pages that it is linked with."""
    above: dict[str, str] = {}

    def first(title: str) -> str:
        while (upper := above.get(title, title)) != title:
            title = upper
        return title

    for claim in claims:
        heads = sorted({first(titles[row]) for row in claim.gold})
        above.update((head, heads[0]) for head in heads)
    return [first(titles[claim.gold[0]]) for claim in claims]


def _split(key: str, dev: float, test: float) -> str:
    digest = hashlib.blake2b(dedup_key(key), digest_size=8, person=b"fever").digest()
    place = int.from_bytes(digest) / 2**64
    return "test" if place < test else "dev" if place < test + dev else "train"


def _claims(path: Path) -> list[Any]:
    text = _text(path)
    if text.startswith("["):
        try:
            whole: list[Any] = json.loads(text)
        except ValueError as error:
            raise BadInput(f"{path} must be JSON, but reading it gave: {error}.") from None
        return whole
    return list(_json_lines(text, path))


def _pages(path: Path) -> Iterator[tuple[str, str]]:
    """Title and text of every page, each one line."""
    files = (
        sorted(file for file in path.iterdir() if not file.name.startswith(".")) if path.is_dir() else [path]
    )
    for file in files:
        text = _text(file)
        if text.startswith("{"):
            for page in _json_lines(text, file):
                named = isinstance(page, dict) and {"id", "text"} <= page.keys()
                require(named, f"{file} holds pages with id and text", page=str(page)[:60])
                yield page_title(str(page["id"])), clean(str(page["text"]))
            continue
        require("<doc " in text, f"{file} holds JSON lines or <doc> blocks", starts_with=text[:40])
        for match in _DOC.finditer(text):
            title, body = clean(html.unescape(match[1])), match[2].strip()
            first, _, rest = body.partition("\n")
            # WikiExtractor repeats the title in the first line.
            yield title, clean(rest if clean(html.unescape(first)) == title else body)


def _json_lines(text: str, path: Path) -> Iterator[Any]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise BadInput(f"{path} must be JSON lines, but line {number} gave: {error}.") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig").lstrip()
    except FileNotFoundError:
        raise BadInput(f"{path} must exist, but it does not. Check the folder of the data.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} must be readable UTF-8 text, but reading it gave: {error}.") from None
