"""FEVER in both published layouts, on tiny generated files, and on the real files where they exist."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import each_row

from stillhouse.core.errors import BadInput
from stillhouse.corpora.candidates import coverage
from stillhouse.corpora.published.fever import Fever, fever_files, page_title, read_fever
from stillhouse.corpora.tfidf import TfIdf

PAGES = {
    "Soul Food (film)": "Soul Food is a 1997 film.\nIt was released by Fox.",
    "AT&T": "AT&T is a company.",
    "Café Müller": "Café Müller is a dance.",
    "X-Men: Apocalypse": "X-Men: Apocalypse is a film.",
}
CLAIMS: list[tuple[int, str, str, list[str]]] = [
    (1, "Soul Food is a film.", "SUPPORTS", ["Soul_Food_-LRB-film-RRB-"]),
    (2, "Nothing is known.", "NOT ENOUGH INFO", []),
    (3, "AT&T is a dance.", "REFUTES", ["Café_Müller", "AT&T"]),
    (4, "Fox is an animal.", "REFUTES", ["Fox", "AT&T"]),
    (5, "soul food is a film", "SUPPORTS", ["X-Men-COLON-_Apocalypse"]),
]


def as_lines() -> str:
    """Return claims in FEVER's own layout; a claim without evidence has one group of null entries."""
    rows: list[dict[str, Any]] = []
    for number, text, label, pages in CLAIMS:
        groups = [[[100, 7, page, 0], [100, 7, page, 3]] for page in pages] or [[[100, None, None, None]]]
        rows.append(
            {"id": number, "verifiable": "VERIFIABLE", "label": label, "claim": text, "evidence": groups}
        )
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_list() -> str:
    keys = ("id", "claim", "label", "evidence_pages")
    return json.dumps([dict(zip(keys, row, strict=True)) for row in CLAIMS], indent=2)


def as_docs() -> str:
    escaped = {title: title.replace("&", "&amp;") for title in PAGES}
    return "".join(
        f'<doc id="{n}" url="http://x?curid={n}" title="{escaped[title]}">\n{title}\n\n{text}\n\n</doc>\n'
        for n, (title, text) in enumerate(PAGES.items())
    )


def as_wiki_pages(folder: Path) -> None:
    rows = [{"id": "", "text": "", "lines": ""}]
    for title, text in PAGES.items():
        name = title.replace("(", "-LRB-").replace(")", "-RRB-").replace(":", "-COLON-").replace(" ", "_")
        rows.append({"id": name, "text": text.replace("\n", " "), "lines": "0\t…"})
    for number, part in enumerate((rows[:3], rows[3:])):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in part)
        (folder / f"wiki-{number:03}.jsonl").write_text(lines, encoding="utf-8")


def read(tmp_path: Path, claims: str, pages: str = "", **options: str) -> Fever:
    (tmp_path / "claims.json").write_text(claims, encoding="utf-8")
    (tmp_path / "pages.txt").write_text(pages or as_docs(), encoding="utf-8")
    return read_fever(tmp_path / "claims.json", tmp_path / "pages.txt", **options)


def all_claims(fever: Fever) -> dict[int, tuple[int, ...]]:
    return {claim.id: claim.gold for claims in fever.splits.values() for claim in claims}


def test_both_layouts_give_the_same_claims(tmp_path: Path) -> None:
    fever = read(tmp_path, as_list())
    assert fever.documents[0] == "Soul Food (film) Soul Food is a 1997 film. It was released by Fox."
    assert all_claims(fever) == {1: (0, 3), 3: (1, 2)}
    assert read(tmp_path, as_lines()) == fever
    (tmp_path / "wiki").mkdir()
    as_wiki_pages(tmp_path / "wiki")
    published = read_fever(tmp_path / "claims.json", tmp_path / "wiki")
    assert (published.documents, published.splits) == (fever.documents, fever.splits)
    assert "dropped 1 pages without title or text, " in published.summary


def test_every_file_of_claims_is_read(tmp_path: Path) -> None:
    whole = read(tmp_path, as_lines())
    lines = as_lines().splitlines(keepends=True)
    for name, part in (("train.jsonl", lines[:3]), ("shared_task_dev.jsonl", lines[2:])):
        (tmp_path / name).write_text("".join(part), encoding="utf-8")
    (tmp_path / "wikipages.docs.txt").write_text(as_docs(), encoding="utf-8")
    claims, pages = fever_files(str(tmp_path))
    both = read_fever(claims, pages)
    assert all_claims(both) == all_claims(whole) and both.splits == whole.splits
    assert both.summary.startswith(
        "2 of 3 claims of train.jsonl; 0 of 3 claims of shared_task_dev.jsonl used; "
    )
    other = (
        lines[2].replace("REFUTES", "SUPPORTS")
        if "REFUTES" in lines[2]
        else lines[2].replace("SUPPORTS", "REFUTES")
    )
    claims[1].write_text(other, encoding="utf-8")
    with pytest.raises(BadInput, match="files of FEVER must agree about a claim"):
        read_fever(claims, pages)


def test_dropped_claims_are_counted_and_summarised(tmp_path: Path) -> None:
    fever = read(tmp_path, as_lines(), as_docs() + as_docs())
    assert fever.summary.startswith("5 claims and 8 pages read; kept ")
    assert fever.summary.endswith(
        "dropped 4 pages with a title seen before, 1 claims without evidence, 1 claims equal to an earlier "
        "one, 1 claims with an evidence page that is missing"
    )


def test_page_titles() -> None:
    assert page_title("Soul_Food_-LRB-film-RRB-") == "Soul Food (film)"
    assert page_title("Marvel_vs._Capcom-COLON-_Infinite") == "Marvel vs. Capcom: Infinite"
    assert page_title("Cafe\u0301_-LSB-x-RSB-") == "Café [x]"


def many(count: int) -> str:
    return json.dumps(
        [
            {"id": n, "claim": f"Claim {n}.", "label": "SUPPORTS", "evidence_pages": ["AT&T"]}
            for n in range(count)
        ]
    )


def test_the_split_is_decided_by_the_claim_alone(tmp_path: Path) -> None:
    few, more = read(tmp_path, many(400)), read(tmp_path, many(2000))
    for name in ("train", "dev", "test"):
        assert {claim.id for claim in few.splits[name]} == {c.id for c in more.splits[name] if c.id < 400}
    shares = [len(more.splits[name]) / 2000 for name in ("dev", "test")]
    assert shares == pytest.approx([20 / 175, 10 / 175], abs=0.02)


def test_a_split_by_page_keeps_linked_claims_together(tmp_path: Path) -> None:
    """Claim n cites pages n and n + 1, except that every fourth cites only n: chains of four claims."""
    titles = [f"Page {n:03}" for n in range(401)]
    pages = "".join(f'<doc title="{title}">\n{title}\n\nWords.\n</doc>\n' for title in titles)
    rows = [
        {
            "id": n,
            "claim": f"Claim {n}.",
            "label": "REFUTES",
            "evidence_pages": titles[n : n + (1 if n % 4 == 3 else 2)],
        }
        for n in np.random.default_rng(0).permutation(400).tolist()
    ]
    fever = read(tmp_path, json.dumps(rows), pages, split_by="page")
    split_of = {claim.id: name for name, claims in fever.splits.items() for claim in claims}
    assert all(split_of[n] == split_of[n - n % 4] for n in range(400))
    gold = {name: {row for claim in claims for row in claim.gold} for name, claims in fever.splits.items()}
    assert all(gold.values()) and not gold["train"] & (gold["dev"] | gold["test"])
    assert not gold["dev"] & gold["test"]
    in_order = json.dumps(sorted(rows, key=lambda row: str(row["claim"])))
    again = read(tmp_path, in_order, pages, split_by="page")
    assert {claim.id: name for name, claims in again.splits.items() for claim in claims} == split_of


@each_row(
    ("claims", "message"),
    [
        ("[1, 2", "must be a JSON array"),
        ('{"id": 1}\n{"id"', "claim number 1|line 2"),
        ('[{"id": 1, "claim": "x", "label": "SUPPORTS"}]', "claim number 1 gave KeyError"),
        ("[3]", "item 1: must be a JSON object"),
        (json.dumps([{"id": 1, "claim": "x", "label": "L", "evidence_pages": ["No"]}]), "all its evidence"),
        ("[]", "all its evidence"),
    ],
)
def test_malformed_claims_are_refused(claims: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        read(tmp_path, claims)


def test_missing_and_unrelated_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="<doc> blocks"):
        read(tmp_path, as_list(), "some prose")
    with pytest.raises(BadInput, match="id and text"):
        read(tmp_path, as_list(), '{"id": "a"}')
    with pytest.raises(BadInput, match="split_by"):
        read(tmp_path, as_list(), split_by="title")
    (tmp_path / "pages.txt").write_text(as_docs())
    with pytest.raises(BadInput, match="must exist"):
        read_fever(tmp_path / "none.json", tmp_path / "pages.txt")
    (tmp_path / "latin.txt").write_bytes("Café".encode("latin-1"))
    with pytest.raises(BadInput, match="UTF-8"):
        read_fever(tmp_path / "latin.txt", tmp_path / "pages.txt")


@pytest.mark.skipif(
    "STILLHOUSE_DATA" not in os.environ, reason="STILLHOUSE_DATA names no folder of real data"
)
def test_the_real_files() -> None:
    folder = Path(os.environ["STILLHOUSE_DATA"]) / "fever"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    fever = read_fever(folder / "fever_labelled_dev.json", folder / "wikipages.docs.txt")
    assert "19998 claims and 2000 pages read" in fever.summary
    assert len(fever.documents) == 2000
    kept = [claim for claims in fever.splits.values() for claim in claims]
    assert 2300 < len(kept) <= 2428
    some = kept[:200]
    _, ids = TfIdf(fever.documents).nearest([claim.text for claim in some], 10)
    covered = coverage(ids, [claim.gold for claim in some], (1, 10))
    assert 0.5 < covered[1] < covered[10] <= 1
