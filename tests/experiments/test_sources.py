"""Several sources of sentences: their shares, a store for each role, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import each_row
from small_experiment import sentences

from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.core.roles import DOCUMENT, PLAIN, QUERY
from stillhouse.core.tokenizing import FastTokenizer
from stillhouse.corpora.tables import open_rows, open_texts
from stillhouse.corpora.tokens import open_tokens
from stillhouse.evaluation.agreement import Agreement
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import as_mapping, changed, experiment_of, merged, with_file
from stillhouse.experiments.kinds.sentences import Sentences
from stillhouse.experiments.preparation import Prepared, prepare
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import mse
from stillhouse.students.head import require_model
from stillhouse.teachers.loading import load_sentence_transformer
from stillhouse.teachers.store import open_store, open_vectors
from stillhouse.teachers.store_admin import collectable
from stillhouse.training.table import student_reader
from stillhouse.training.walk import run
from stillhouse.training.where import Where
from stillhouse.values.data import Model, StoreMix

PROMPTS = {"teacher.prompts.query": "query text: ", "teacher.prompts.document": "passage of: "}
OWN = {"student.prompts.query": "find ", "student.prompts.document": "read "}


@pytest.fixture
def given(experiment: Experiment, tmp_path: Path) -> Experiment:
    """Queries, documents and plain texts, with prompts of the teacher."""
    words = sentences(300, seed=5)
    listed = []
    for at, (name, share, role) in enumerate((("q", 0.2, QUERY), ("d", 0.5, DOCUMENT), ("p", 0.3, PLAIN))):
        (tmp_path / f"{name}.txt").write_text("\n".join(words[at * 100 : at * 100 + 100]))
        listed.append({"corpus": str(tmp_path / f"{name}.txt"), "share": share, "role": role})
    mapping = {key: value for key, value in as_mapping(experiment).items() if key != "sentences"}
    return experiment_of(
        merged(
            mapping,
            {"sentences.sources": listed, "sentences.count": 120, "sentences.held_out": 24, **PROMPTS},
        )
    )


def prepared_of(given: Experiment, workspace: Workspace) -> Prepared:
    return prepare(given, workspace, Embedding(local=True))


def with_shares(given: Experiment, *shares: float) -> Experiment:
    kind = given.source
    assert isinstance(kind, Sentences)
    sources = tuple(replace(each, share=share) for each, share in zip(kind.sources, shares, strict=True))
    return replace(given, data=(replace(kind, sources=sources),))


def test_each_source_is_a_store_with_the_prompt_of_its_role(given: Experiment, workspace: Workspace) -> None:
    setting = prepared_of(given, workspace).setting
    data = setting[Sentences]
    mix = data.store
    assert isinstance(mix, StoreMix) and data.store.roles == mix.roles
    # Of 120 texts a fifth is held out for dev and another for the test, from each source alike.
    assert mix.roles == ((16, QUERY), (40, DOCUMENT), (24, PLAIN)) and data.rows == 80
    assert [part.prompt for part in mix.stores] == ["query text: ", "passage of: ", ""]
    texts = list(open_texts(workspace, mix.texts))
    assert texts == [text for part in mix.parts for text in open_texts(workspace, part.texts)]
    # What is read is what stock sentence-transformers gives with the prompt of each.
    stock: Any = load_sentence_transformer(require_model(setting.teacher))
    prompts = [part.prompt for part in mix.stores for _ in open_texts(workspace, part.texts)]
    expected = stock.encode([prompt + text for prompt, text in zip(prompts, texts, strict=True)])
    reader, shuffled = open_vectors(workspace, mix), np.random.default_rng(0).permutation(len(texts))
    np.testing.assert_allclose(reader.gather(shuffled), expected[shuffled], atol=2e-3)
    assert np.array_equal(reader.rows, np.arange(80)) and len(reader) == 80
    assert reader.gather(shuffled[:6].reshape(2, 3)).shape == (2, 3, reader.dim)
    for rows in ([-1], [80]):
        with pytest.raises(BadInput, match=r"row ids in \[0, 80\)"):
            reader.gather(np.array(rows))


def test_the_student_reads_each_source_with_the_prompt_of_its_role(
    given: Experiment, workspace: Workspace
) -> None:
    setting = prepared_of(changed(given, OWN), workspace).setting
    stage = mse.plan(mse.HyperParameters(batch_size=16), setting)
    folder = run(stage, workspace, where=Where(device="cpu", threads=1))
    assert read_manifest(folder)["steps"] > 0
    tokenizer = setting.student.build().tokenizer
    (table,) = student_reader(stage, tokenizer).tables(stage.examples).values()
    assert table.prompts == ((16, "find "), (40, "read "), (24, ""))
    mix = setting[Sentences].store
    prompts = ["find "] * 16 + ["read "] * 40 + [""] * 24
    texts = open_texts(workspace, mix.texts)
    (ids, _) = FastTokenizer(Path(given.teacher.name), 16)(
        [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
    )
    np.testing.assert_array_equal(np.load(open_tokens(workspace, table).folder / "ids.npy"), ids)
    # Without prompts of its own the student reads one table, as from a single source.
    bare = replace(stage, prompts=type(stage.prompts)())
    (plain,) = student_reader(bare, Model("x")).tables(stage.examples).values()
    assert plain.prompts == () and plain.prompt == ""


def test_agreement_is_measured_over_all_sources_each_in_its_role(
    given: Experiment, workspace: Workspace
) -> None:
    setting = prepared_of(changed(given, {"selection.heldout_loss": True, **OWN}), workspace).setting
    (agreement,) = (each for each in setting.dev.evaluators if each.target is Agreement)
    stored = agreement.kwargs["store"]
    assert isinstance(stored, StoreMix)
    assert stored.roles == ((4, QUERY), (10, DOCUMENT), (6, PLAIN))
    places = {text: at for at, text in enumerate(open_texts(workspace, stored.texts))}
    reader = open_vectors(workspace, stored)
    read: dict[str, set[int]] = {}

    class Teacher:
        """Answers with the stored vectors, and notes in which role which texts are read."""

        def _vectors(self, role: str, texts: list[str]) -> Any:
            rows = [places[text] for text in texts]
            read.setdefault(role, set()).update(rows)
            return reader.gather(np.array(rows))

        def encode(self, texts: list[str]) -> Any:
            return self._vectors(PLAIN, texts)

        def encode_query(self, texts: list[str]) -> Any:
            return self._vectors(QUERY, texts)

        def encode_document(self, texts: list[str]) -> Any:
            return self._vectors(DOCUMENT, texts)

    figures = agreement.build(workspace=workspace)(Teacher())
    assert figures["agreement_spearman_cosine"] > 0.9999, "the vectors are in the order of the texts"
    assert read[QUERY] <= set(range(4)) and read[DOCUMENT] <= set(range(4, 14))
    assert read[PLAIN] <= set(range(14, 20)) and set(read) == {QUERY, DOCUMENT, PLAIN}
    assert setting.dev.held_out == stored
    stage = mse.plan(mse.HyperParameters(batch_size=16), setting)
    folder = run(stage, workspace, where=Where(device="cpu", threads=1))
    assert "heldout_loss" in read_manifest(folder)["evaluations"][-1]["metrics"]


def test_the_same_mix_is_the_same_data_and_another_share_is_not(
    given: Experiment, tmp_path: Path, workspace: Workspace
) -> None:
    def planned(chosen: Experiment, root: Workspace) -> str:
        return mse.plan(mse.HyperParameters(batch_size=16), prepared_of(chosen, root).setting).fingerprint

    first = planned(given, workspace)
    assert planned(given, Workspace(tmp_path / "other")) == first
    assert planned(with_shares(given, 2, 5, 3), workspace) == first, "shares are relative to their sum"
    assert planned(with_shares(given, 0.3, 0.4, 0.3), workspace) != first
    kind = given.source
    assert isinstance(kind, Sentences)
    other_role = (replace(kind.sources[0], role=PLAIN), *kind.sources[1:])
    assert planned(replace(given, data=(replace(kind, sources=other_role),)), workspace) != first


def test_a_share_of_the_texts_keeps_the_shares_of_the_sources(
    given: Experiment, workspace: Workspace
) -> None:
    value = prepared_of(given, workspace).setting[Sentences]
    half = value.share(0.5)
    rows = open_rows(workspace, half.examples)["text"]
    assert [int(((rows >= low) & (rows < high)).sum()) for low, high in ((0, 16), (16, 56), (56, 80))] == [
        8,
        20,
        12,
    ]
    assert len(rows) == half.rows == 40 and half.examples.text_roles == value.store.roles


def test_a_list_stands_for_the_sources() -> None:
    listed = [{"corpus": "a.txt", "share": 0.5, "role": "query"}, {"corpus": "b.txt"}]
    count = {"sentences.count": 60}
    one = experiment_of(merged({}, {"sentences.sources": listed, **count}))
    file = experiment_of(merged(with_file({}, {"sentences": listed}), count))
    assert one == file == experiment_of(as_mapping(one))
    with pytest.raises(BadInput, match="shares of a number of texts"):
        experiment_of({"sentences": listed})
    kind = one.source
    assert isinstance(kind, Sentences) and kind.corpora == ("a.txt", "b.txt") and not kind.brings()
    assert kind.described == "a.txt (33%), b.txt (67%)"
    docs = {"corpus": "pydocs"}
    with_docs = experiment_of({"sentences": {"sources": [*listed, docs], "count": 60}})
    assert with_docs.uses_pydocs and [each.key for each in with_docs.kinds[1:]] == ["collection", "pairs"]
    unused = {"sources": [*listed, docs | {"share": 0}], "count": 60}
    assert not experiment_of({"sentences": unused}).uses_pydocs


@each_row(
    ("sources", "more", "message"),
    [
        ([{"corpus": "a", "share": 0}, {"corpus": "b", "share": 0.0}], {}, "sum to something positive"),
        ([{"corpus": "a", "share": -0.5}], {}, r"share of sentences.sources >= 0.*share=-0.5"),
        ([{"corpus": "a", "share": float("nan")}], {}, "must be of type float"),
        ([{"corpus": "a", "role": "reader"}], {}, r"role of sentences.sources in .*role='reader'"),
        ([{"share": 0.5}], {}, "must name its corpus"),
        ([{"corpus": "a", "shares": 1}], {}, r"unknown field `sentences.sources\[0\].shares`.*share"),
        ([{"corpus": "a", "share": "half"}], {}, r"sentences.sources\[0\].share must be of type float"),
        ("a,b", {}, "must be a list of mappings"),
        (["a"], {}, r"`sentences.sources\[0\]` must map names to values"),
        ([{"corpus": "a"}], {"sentences.corpus": "b"}, "each say how they are read.*corpus='b'"),
        ([{"corpus": "a"}], {"sentences.role": "query"}, "each say how they are read"),
        ([{"corpus": "a"}], {"sentences.augmentation.wordnet": "w"}, "take no copies"),
        ([{"corpus": "a"}], {"sentences.count": 0}, "shares of a number of texts"),
        ([{"corpus": "a"}], {"sentences.count": None}, "shares of a number of texts"),
        ([{"corpus": "pydocs", "longer": "cut"}], {}, "pydocs must be taken as it is.*longer='cut'"),
        ([{"corpus": "pydocs"}, {"corpus": "pydocs"}], {}, "pydocs must be one source"),
        ([{"corpus": "a"}], {"collection.synthetic": "paragraph"}, "from a single corpus"),
    ],
)
def test_a_wrong_mix_is_refused(sources: Any, more: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        experiment_of(merged({}, {"sentences.sources": sources, "sentences.count": 60, **more}))


def test_the_command_line_embeds_a_mix(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("\n".join(sentences(120)))
    Path("b.txt").write_text(" ".join(f"{text}." for text in sentences(160, seed=9)[60:]))
    listed = [
        {"corpus": "a.txt", "share": 0.8, "role": "query"},
        {"corpus": "b.txt", "share": 0.2, "role": "document", "max_words": 20, "longer": "pack"},
    ]
    arguments = ["embed", "--local", "--device", "cpu", "--teacher", str(tiny_model), "--root", "root"]
    code = main([*arguments, "--sources", json.dumps(listed), "--sentences", "80", "--json", "out.json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert (
        "64 of 120 rows of a.txt\n    16 of 32 rows of b.txt (1 to 20 words, longer: pack)\n"
        in printed.out + printed.err
    )
    stores = [read_manifest(path.parent) for path in Path("root/stores").glob("*/manifest.json")]
    assert sum(store["rows"] for store in stores) == 80


def test_a_store_that_is_part_of_a_mix_is_kept(given: Experiment, workspace: Workspace) -> None:
    mix = prepared_of(given, workspace).setting[Sentences].store
    assert isinstance(mix, StoreMix)
    assert not collectable(workspace, older_than=0.0)
    assert all(
        len(open_store(workspace, part)) == rows
        for part, (rows, _) in zip(mix.stores, mix.roles, strict=True)
    )
