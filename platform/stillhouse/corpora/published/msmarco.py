"""MS MARCO's own files as text to train on: passages, training queries, and pairs of both.

Nguyen et al., MS MARCO: A Human Generated Machine Reading Comprehension Dataset, arXiv:1611.09268. The files
have no header and are separated by tabs:

    collection.tsv             pid, passage
    queries.train.tsv          qid, query
    qrels.train.tsv            qid, 0, pid, 1: a relevant passage
    qidpidtriples.*.tsv        qid, pid, pid: a relevant passage and another one (`.gz` too)
    triples.train.*.tsv        query, passage, passage: the same as texts (`.gz` too)

Ids are looked up in the ``collection.tsv`` and ``queries.train.tsv`` beside the file. Of these, only the
texts that are named are held in memory.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.errors import BadInput
from stillhouse.corpora.reading.row_limit import Taking
from stillhouse.corpora.reading.rows import numbered_lines

COLLECTION, QUERIES, QRELS = "collection.tsv", "queries.train.tsv", "qrels.train.tsv"
ID_TRIPLES, TRIPLES = "qidpidtriples", "triples"


def text_files(folder: Path) -> tuple[Path, ...]:
    """Find the files of unlabelled text, passages first; none in a folder without a ``collection.tsv``."""
    if not (folder / COLLECTION).is_file():
        return ()
    return tuple(folder / name for name in (COLLECTION, QUERIES) if (folder / name).is_file())


def id_texts(path: Path) -> Iterator[tuple[int, str, str]]:
    """Read the lines of passages or queries: number, id and text.

    Raises:
        BadInput: A line is no id and a text; the message names it.
    """
    for at, line in _lines(path):
        name, tab, text = line.partition("\t")
        if not (tab and name.strip()):
            raise BadInput(f"{path}, line {at}: must be an id and a text separated by a tab.")
        yield at, name.strip(), text.strip()


@dataclass(frozen=True)
class MarcoPairs:
    """Judgements or triples to fine-tune on, and the passages and queries that their ids name, if any."""

    pairs: Path
    texts: tuple[Path, ...] = ()

    @property
    def has_negatives(self) -> bool:
        """True if every line has a passage that is not relevant."""
        return not self.texts or self.pairs.name.startswith(ID_TRIPLES)

    def rows(self, taking: Taking[Any], *, negatives: bool = True) -> Iterator[Mapping[str, str]]:
        """Read the pairs as texts: ``query``, ``passage`` and, of triples, ``negative``.

        Args:
            taking: Which lines of ids are taken, before their texts are looked up.
            negatives: Whether lines that differ in the negative alone are two.

        Raises:
            BadInput: If a line is malformed or names an unknown id; the message names it.
        """
        if not self.texts:
            for _, cells in self._cells(3):
                yield dict(zip(("query", "passage", "negative"), cells, strict=True))
            return
        triples = self.pairs.name.startswith(ID_TRIPLES)
        lines = self._cells(3 if triples else 4)
        named = ((at, tuple(cells) if triples else (cells[0], cells[2])) for at, cells in lines)
        width = 3 if negatives else 2
        found: list[Any] = list(taking.of(named, lambda line: "\t".join(line[1][:width]).encode()))
        queries = _named(self.texts[1], {ids[0] for _, ids in found})
        passages = _named(self.texts[0], {each for _, ids in found for each in ids[1:]})
        for at, (query, *named) in found:
            for known, name, file in (
                (queries, query, self.texts[1]),
                *((passages, each, self.texts[0]) for each in named),
            ):
                if name not in known:
                    raise BadInput(f"{self.pairs}, line {at}: {name!r} must be an id of {file}, but is not.")
            texts = [queries[query], *(passages[each] for each in named)]
            yield dict(zip(("query", "passage", "negative"), texts, strict=False))

    def _cells(self, count: int) -> Iterator[tuple[int, list[str]]]:
        for at, line in _lines(self.pairs):
            cells = [cell.strip() for cell in line.split("\t")]
            if len(cells) != count:
                raise BadInput(
                    f"{self.pairs}, line {at}: must have {count} columns separated by tabs, but has "
                    f"{len(cells)}."
                )
            if count == 4 and not (cells[3].isdigit() and int(cells[3]) > 0):
                continue
            yield at, cells


def marco_pairs(source: str) -> MarcoPairs | None:
    """Recognise MS MARCO's pairs: its folder (then those of ``qrels.train.tsv``), or a file; None for others.

    Raises:
        BadInput: If the passages or the queries are missing beside the pairs.
    """
    path = Path(source).expanduser()
    if path.is_dir() and (path / COLLECTION).is_file():
        path = path / QRELS
        if not path.is_file():
            raise BadInput(
                f"a folder of MS MARCO must hold {QRELS} to train on its pairs, but {path.parent} does not. "
                "Add it, or name a file of triples."
            )
    name = path.name.removesuffix(".gz")
    if not name.endswith(".tsv") or not path.is_file():
        return None
    if name.startswith(f"{TRIPLES}.train"):
        return MarcoPairs(path)
    if name == QRELS or name.startswith(ID_TRIPLES):
        texts = (path.parent / COLLECTION, path.parent / QUERIES)
        missing = [each.name for each in texts if not each.is_file()]
        if missing:
            raise BadInput(
                f"{path.name} of MS MARCO names texts by ids, so {' and '.join(missing)} must stand beside "
                f"it, but {path.parent} has none. Add it, or give triples.train.small.tsv, which holds texts."
            )
        return MarcoPairs(path, texts)
    return None


def _named(file: Path, names: set[str]) -> dict[str, str]:
    """The texts of some ids."""
    return {name: text for _, name, text in id_texts(file) if name in names}


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    for at, line in numbered_lines(path):
        if line.strip():
            yield at, line.rstrip("\r\n")
