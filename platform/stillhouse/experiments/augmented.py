"""From ``--augment-…`` to more training text: as IBKD's (section 4.3), with synonyms and back-translated.

A copy that says nothing new, and one that says what dev or test hold, is left out. The table is built once;
back-translation goes on where it was stopped.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.core.artifacts import Workspace, locked, read_json, sha256_of, write_json
from stillhouse.core.console import Progress, say
from stillhouse.core.errors import require
from stillhouse.corpora.reading.ingest import note_path
from stillhouse.corpora.reading.sentences import clean, dedup_key
from stillhouse.corpora.tables import Texts, open_texts, write_texts
from stillhouse.corpora.wordnet import read_wordnet, wordnet_files
from stillhouse.plan.data import Model, TextTable

if TYPE_CHECKING:
    from stillhouse.experiments.experiment import Experiment

VERSION = 1
Copies = Callable[[Texts, int], Iterator[str]]
"""All texts and the number of the copy to one text for each."""


def check_augmentation(wanted: "Experiment") -> None:
    """Refuse a WordNet or a translator that cannot be, before any work.

    Raises:
        BadInput: No YAML files in the folder, or models that are no pair of translators.
    """
    from stillhouse.teachers.translation import check_translator

    if wanted.augment_wordnet:
        wordnet_files(wanted.augment_wordnet)
    for model in _translators(wanted):
        check_translator(model)


def augment_table(
    wanted: "Experiment",
    workspace: Workspace,
    sentences: TextTable,
    held_out: Sequence[TextTable],
    device: str,
) -> tuple[TextTable, dict[str, int]]:
    """The sentences, then their copies; as they are where none are asked for.

    Args:
        wanted: Says what copies are made.
        workspace: Where the tables stand.
        sentences: What is varied.
        held_out: Texts that no copy may be.
        device: Where the translators run.

    Returns:
        The table, and counts by name: ``augmented_copies`` that were made, ``augmented_changed`` that differ
        from their sentence, ``augmented_added``; left out, ``augmented_duplicates``, ``augmented_held_out``
        and ``augmented_empty``.

    Raises:
        BadInput: See `check_augmentation`.
    """
    if not (wanted.augment_wordnet or wanted.augment_translators):
        return sentences, {}
    translators = _translators(wanted)
    files = wordnet_files(wanted.augment_wordnet) if wanted.augment_wordnet else []
    signature = {
        "version": VERSION,
        "sentences": sentences,
        "held_out": sorted(table.sha256 for table in held_out),
        "wordnet": [[file.name, sha256_of(file)] for file in files],
        "probability": wanted.augment_probability if files else 0.0,
        "translators": translators,
        "copies": wanted.augment_each,
    }
    label = f"{sentences.label}-augmented"
    note = note_path(workspace, label, signature)
    with locked(note.with_suffix(".lock")):
        if note.exists():
            known = read_json(note)
            table = TextTable(sha256=known["table"], label=label)
            if workspace.finished(table):
                return table, known["counts"]
        ways: list[Copies] = [_synonyms(wanted)] if files else []
        if translators:
            ways.append(_back_translations(translators, note.with_suffix(""), device))
        counts: Counter[str] = Counter()
        rows = _rows(workspace, sentences, held_out, ways, wanted.augment_each, counts)
        table = write_texts(workspace, label, rows, deduplicate=False, origin={"augmented": sentences.sha256})
        told = {f"augmented_{name}": counts[name] for name in _COUNTED}
        write_json(note, {"table": table.sha256, "label": label, "counts": told})
        shutil.rmtree(note.with_suffix(""), ignore_errors=True)
    say(f"  {label}: " + ", ".join(f"{counts[name]:,} {name.replace('_', ' ')}" for name in _COUNTED))
    return table, told


_COUNTED = ("copies", "changed", "added", "duplicates", "held_out", "empty")


def _rows(
    workspace: Workspace,
    sentences: TextTable,
    held_out: Sequence[TextTable],
    ways: Sequence[Copies],
    copies: int,
    counts: Counter[str],
) -> Iterator[str]:
    """The sentences as they are, then what is new of the copies, way by way."""
    texts = open_texts(workspace, sentences)
    seen = set()
    for text in texts:
        seen.add(dedup_key(text))
        yield text
    kept_back = {dedup_key(text) for table in held_out for text in open_texts(workspace, table)}
    for copy in range(copies):
        for way in ways:
            for text, varied in zip(texts, way(texts, copy), strict=True):
                found = clean(varied)
                counts["copies"] += 1
                counts["changed"] += found != text
                fate = _fate(found, seen, kept_back)
                counts[fate] += 1
                if fate == "added":
                    yield found


def _fate(text: str, seen: set[bytes], held_out: set[bytes]) -> str:
    if not text:
        return "empty"
    key = dedup_key(text)
    if key in held_out:
        return "held_out"
    if key in seen:
        return "duplicates"
    seen.add(key)
    return "added"


def _synonyms(wanted: "Experiment") -> Copies:
    from stillhouse.corpora.augmentation import with_synonyms

    wordnet = read_wordnet(wanted.augment_wordnet)
    probability = wanted.augment_probability
    return lambda texts, copy: with_synonyms(texts, wordnet, probability=probability, seed=copy)


def _back_translations(models: Sequence[Model], folder: Path, device: str) -> Copies:
    """The first copy is decoded as the models' own settings say, the others are drawn."""
    from stillhouse.core.devices import usable_device
    from stillhouse.teachers.translation import Translator, back_translated

    loaded: list[Any] = []

    def translate(texts: list[str], seed: int | None) -> list[str]:
        if not loaded:
            loaded.extend(Translator(model, usable_device(device)) for model in models)
        return back_translated(texts, *loaded, seed=seed)

    def copies(texts: Texts, copy: int) -> Iterator[str]:
        progress, done = Progress("back-translating", "texts"), 0
        for shard in range(len(texts.shard_starts)):
            kept, here = folder / f"{copy}-{shard:05d}.json", texts.shard(shard)
            if not kept.exists():
                # Each copy of each shard draws from a seed of its own.
                seed = copy * len(texts.shard_starts) + shard if copy else None
                write_json(kept, translate(here, seed))
            yield from read_json(kept)
            done += len(here)
            progress(done, len(texts))

    return copies


def _translators(wanted: "Experiment") -> list[Model]:
    from stillhouse.teachers.weights import resolve_model

    named = [name.strip() for name in wanted.augment_translators.split(",") if name.strip()]
    require(
        len(named) in (0, 2) and bool(named) == bool(wanted.augment_translators),
        "--augment-translators is two models, there and back, with a comma between",
        augment_translators=wanted.augment_translators,
        remedy="Such as Helsinki-NLP/opus-mt-en-de,Helsinki-NLP/opus-mt-de-en.",
    )
    return [resolve_model(name) for name in named]
