"""Candidates of FEVER's claims by TF-IDF over growing numbers of pages: seconds and memory, as Markdown.

    python benchmarks/candidates.py --data-root DATA --pages 10000 100000

The pages are cut from the texts below the data root (``fever/wikipages.docs.txt``, ``corpus/*/*``) into
pieces of 85 words on average, which is the length of FEVER's pages, and searched for its claims. Where more
pages are asked for than the texts give, they are joined from halves of two of them: no new words, but new
neighbours. Each line runs in a process of its own, so its peak memory is its own; ``pages MB`` is what the
process held before, the pages and the imports. Seconds are those of the processor, over all threads.
"""

import argparse
import json
import multiprocessing
import re
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from harness import DATA, machine
from retrieval_scale import peak_mb

from stillhouse.corpora.published.fever import fever_files
from stillhouse.corpora.tfidf import TfIdf

WORDS, LONGEST = 85, 400
"""Average words of a page of FEVER, and the most that a piece has here."""
HEADER = ("pages", "claims", "terms", "index s", "search s", "peak MB", "pages MB")


def texts(root: Path) -> Iterator[str]:
    """The articles below the data root, without their marks."""
    files = [root / "fever" / "wikipages.docs.txt", *sorted((root / "corpus").glob("*/*"))]
    for file in files:
        whole = file.read_text(encoding="utf-8")
        if file.suffix == ".jsonl":
            yield from (json.loads(line)["text"] for line in whole.splitlines())
        else:
            yield from (re.sub(r"<doc[^>]*>", "", part) for part in whole.split("</doc>"))


def pages(root: Path, count: int) -> list[str]:
    """Cut that many pages, in an order that depends on nothing else."""
    draw = np.random.default_rng(0)
    cut = []
    for text in texts(root):
        words, at = text.split(), 0
        while at + 10 < len(words):
            size = int(np.clip(draw.lognormal(np.log(WORDS) - 0.28, 0.75), 10, LONGEST))
            cut.append(" ".join(words[at : at + size]))
            at += size
    shuffled = [cut[row] for row in draw.permutation(len(cut))[:count]]
    while len(shuffled) < count:
        one, other = (cut[row].split() for row in draw.integers(len(cut), size=2))
        shuffled.append(" ".join(one[: len(one) // 2] + other[len(other) // 2 :]))
    return shuffled


def claims(root: Path) -> list[str]:
    """Texts of the labelled claims."""
    return [claim["claim"] for claim in json.loads(fever_files(str(root / "fever"))[0][0].read_text())]


def line(root: Path, count: int, asked: int, ngrams: int) -> list[str]:
    """In a process of its own: index, search and report."""
    documents, queries = pages(root, count), claims(root)[:asked]
    held = peak_mb()
    began = time.process_time()
    index = TfIdf(documents, ngrams=ngrams)
    indexed = time.process_time()
    index.nearest(queries, 20)
    searched = time.process_time()
    peak = peak_mb()
    costs = [f"{indexed - began:.1f}", f"{searched - indexed:.1f}", f"{peak:.0f}", f"{held:.0f}"]
    return [f"{len(documents):,}", f"{len(queries):,}", f"{index.terms:,}", *costs]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data-root", type=Path, default=DATA or None, required=not DATA)
    parser.add_argument("--pages", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--claims", type=int, default=19_998)
    parser.add_argument("--ngrams", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print(f"\n| n-grams | {' | '.join(HEADER)} |\n|{'---|' * (len(HEADER) + 1)}")
    for ngrams in options.ngrams:
        for count in options.pages:
            fresh = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=fresh) as pool:
                given = (options.data_root, count, options.claims, ngrams)
                print(f"| {ngrams} | {' | '.join(pool.submit(line, *given).result())} |", flush=True)


if __name__ == "__main__":
    main()
