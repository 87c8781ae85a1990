"""From ``--parallel`` to training, dev and test pairs, and what is measured on them."""

from pathlib import Path

from stillhouse.core.artifacts import Workspace, locked, read_json, write_json
from stillhouse.core.errors import require
from stillhouse.core.identity import Spec, spec
from stillhouse.corpora.reading.corpus import hub_name, list_files
from stillhouse.corpora.reading.ingest import note_path, noted, recalled
from stillhouse.corpora.reading.parallel import Parallel, moses_pair
from stillhouse.plan.data import Examples
from stillhouse.plan.stage import DevSuite, TestSuite

VERSION = 1
SELECT = "translation_mean_accuracy"


def parallel_corpora(text: str, limit: int = 0) -> list[Parallel]:
    """The corpora that a flag names, separated by commas.

    Args:
        text: ``de=pairs.tsv`` (two columns), ``de=folder`` (``*.en`` beside ``*.de``), ``de=folder:eng``
            (another source language), or ``de=hf:name:config``, one or more.
        limit: Pairs of each; 0 takes all.

    Raises:
        BadInput: A part without a language.
    """
    corpora = []
    for part in filter(None, text.split(",")):
        language, equals, source = part.strip().partition("=")
        require(
            bool(language and equals and source),
            "--parallel is LANGUAGE=CORPUS, several separated by commas",
            given=part,
            remedy="Such as --parallel de=de.tsv,fr=fr.tsv.gz",
        )
        folder, colon, other = source.rpartition(":")
        if hub_name(source) is None and colon and Path(folder).is_dir():
            corpora.append(moses_pair(folder, other, language, limit=limit or None))
        elif Path(source).is_dir():
            corpora.append(moses_pair(source, "en", language, limit=limit or None))
        else:
            corpora.append(Parallel(source, language=language, limit=limit or None))
    require(bool(corpora), "--parallel names at least one corpus", given=text)
    return corpora


def read_parallel_data(
    workspace: Workspace, text: str, *, limit: int, held_out: int, refresh: bool = False
) -> tuple[Examples, Examples, Examples]:
    """Training, dev and test pairs of the corpora that a flag names; read again when a file has changed."""
    from stillhouse.corpora.reading.translations import split_parallel, write_parallel

    corpora = parallel_corpora(text, limit)
    local = [
        path for corpus in corpora for path in (corpus.source, corpus.target) if path and not hub_name(path)
    ]
    files = [file for path in local for file in list_files(path)[1]]
    signature = {"version": VERSION, "corpora": corpora, "files": files, "held_out": held_out}
    note = note_path(workspace, "parallel", signature)
    with locked(note.with_suffix(".lock")):
        if note.exists() and not refresh:
            known = [recalled(workspace, part) for part in read_json(note)["parts"]]
            if all(known):
                return known[0], known[1], known[2]  # type: ignore[return-value]
        train, dev, test = split_parallel(workspace, write_parallel(workspace, corpora), held_out)
        write_json(note, {"parts": [noted(part) for part in (train, dev, test)]})
        return train, dev, test


def parallel_suites(
    dev: Examples, test: Examples, data_root: str, chosen: str = ""
) -> tuple[DevSuite, TestSuite]:
    """Translation accuracy, and STS between languages where the data root has it.

    Args:
        dev: Pairs of the dev split.
        test: Pairs of the test split.
        data_root: Where translations of STS-B lie; empty leaves STS out.
        chosen: ``stsb`` selects by its mean over the pairs of languages, else translation accuracy does.
    """
    from stillhouse.evaluation.crosslingual_sts import CrossLingualSTS, resolve_crosslingual_sts
    from stillhouse.evaluation.translation import Translations

    steering: list[Spec[object]] = [spec(Translations, examples=dev)]
    final: list[Spec[object]] = [spec(Translations, examples=test, split="test")]
    select = SELECT
    if data_root or chosen == "stsb":
        stsb = resolve_crosslingual_sts(data_root, "stsb", "dev")
        steering.append(spec(CrossLingualSTS, data=stsb))
        if chosen == "stsb":
            mean = "cross_avg" if len(stsb.pairs) > 1 else stsb.pairs[0]
            select = f"xsts_{mean}_spearman_cosine_x100"
        final.append(spec(CrossLingualSTS, data=resolve_crosslingual_sts(data_root, "sts2017", "test")))
    return DevSuite(tuple(steering), select=select), TestSuite(tuple(final))
