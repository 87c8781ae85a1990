"""From a FEVER folder to claims with candidates, and to a setting for training."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.corpora.published.fever import fever_files
from stillhouse.corpora.tables import open_rows, open_texts, open_values
from stillhouse.evaluation.suites import run_suite
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import changed, experiment_of, merged
from stillhouse.experiments.kinds.claims import Claims
from stillhouse.experiments.kinds.word_vectors import WordVectors
from stillhouse.experiments.preparation import prepare
from stillhouse.experiments.teacher_placement import Embedding
from stillhouse.methods import check_needs, hyper_parameters, load_method
from stillhouse.values.data import Scored

PAGES = 60


@pytest.fixture(scope="module")
def fever(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two claims per page; a page contains little more than its number."""
    folder = tmp_path_factory.mktemp("fever")
    titles = [f"Page{n}" for n in range(PAGES)]
    docs = [f'<doc title="{t}">\n{t}\n\n{t} is about number{n}.\n</doc>' for n, t in enumerate(titles)]
    (folder / "wikipages.docs.txt").write_text("\n".join(docs))
    claims = [
        {"id": 2 * n + k, "label": "SUPPORTS", "claim": claim, "evidence_pages": [title]}
        for n, title in enumerate(titles)
        for k, claim in enumerate((f"Is number{n} in a page?", f"Something of {title} is said."))
    ]
    (folder / "fever_labelled_dev.json").write_text(json.dumps(claims))
    return folder


def words(text: str) -> set[str]:
    """Return titles and numbers."""
    return set(re.findall(r"(?:Page|number)\d+", text))


@pytest.fixture
def given(experiment: Experiment, fever: Path) -> Experiment:
    claims = Claims(str(fever), candidates=4, dev=5, test=50)
    return changed(dataclasses.replace(experiment, data=(claims,)), {"budget.fraction": 0.5})


def test_claims_their_candidates_and_the_printed_summary(
    given: Experiment, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared = prepare(given, workspace, Embedding(local=True))
    task, facts = prepared.setting[Claims], prepared.facts
    assert prepared.setting[WordVectors]
    rows, gold = open_rows(workspace, task.examples), open_values(workspace, task.examples)["gold"]
    assert rows["documents"].shape == gold.shape == (len(rows["claim"]), 4) and task.rows == len(gold) // 2
    assert (gold.sum(axis=1) == 1).all(), "in training the relevant page is always a candidate"
    claims = open_texts(workspace, task.examples.columns["claim"])[rows["claim"]]
    pages = open_texts(workspace, task.examples.columns["documents"])[rows["documents"][gold > 0]]
    assert all(words(claim) & words(page) for claim, page in zip(claims, pages, strict=True))
    output = capsys.readouterr()
    assert facts["coverage"].startswith("C=1 ") and "C=4" in facts["coverage"]
    assert facts["coverage"] in output.out + output.err and "accuracy@1" in output.out + output.err
    assert facts["tfidf_dev_accuracy@1"] == 1.0
    (evaluator,) = task.dev.evaluators
    assert len(open_rows(workspace, evaluator.kwargs["examples"])["claim"]) == 5

    class Exact:
        """A scorer that recognises the page by its title or its number."""

        def score(self, first: list[str], second: list[str]) -> np.ndarray:
            pairs = zip(first, second, strict=True)
            return np.array([float(bool(words(claim) & words(page))) for claim, page in pairs])

    figures = run_suite(task.dev, Exact(), workspace)  # type: ignore[arg-type]
    assert figures["fever_accuracy@1"] == figures["fever_recall_macro@3"] == figures["fever_dcg"] == 1.0
    assert prepare(given, workspace, Embedding(local=True)).setting == prepared.setting
    wider = changed(given, {"claims.candidates": 5})
    other = prepare(wider, workspace, Embedding(local=True)).setting[Claims]
    assert other.examples != task.examples


def test_claims_without_pages_teach_by_their_scores_alone(
    given: Experiment, fever: Path, workspace: Workspace, tmp_path: Path
) -> None:
    claims = json.loads((fever / "fever_labelled_dev.json").read_text())
    lost = [
        {"id": 1000 + n, "label": "REFUTES", "claim": f"Lost {n}.", "evidence_pages": ["Nowhere"]}
        for n in range(30)
    ]
    bare = [{**lost[0], "claim": text, "evidence_pages": []} for text in ("Bare", claims[0]["claim"])]
    (tmp_path / "fever_labelled_dev.json").write_text(json.dumps([*claims, *lost, *bare]))
    (tmp_path / "wikipages.docs.txt").write_text((fever / "wikipages.docs.txt").read_text())
    changes = {"claims.path": str(tmp_path), "budget.fraction": 1.0}
    plain = prepare(changed(given, changes), workspace, Embedding(local=True)).setting
    setting = prepare(
        changed(given, changes | {"claims.unlabelled": 12}), workspace, Embedding(local=True)
    ).setting
    task = setting[Claims]
    assert plain[Claims].unlabelled is None and task.unlabelled is not None
    rows, gold = open_rows(workspace, task.unlabelled), open_values(workspace, task.unlabelled)["gold"]
    assert len(gold) == task.rows == plain[Claims].rows + 12 and not gold[-12:].any() and gold[:-12].any()
    texts = open_texts(workspace, task.unlabelled.columns["claim"])[rows["claim"][-12:]]
    assert set(texts) <= {claim["claim"] for claim in [*lost, bare[0]]}
    method = load_method("retrieval_kd")
    small = {"batch_size": 16, "teacher_batch_size": 16}
    teacher, student = method.plan(hyper_parameters(method, small | {"alpha": 1.0}), setting).chain()
    assert isinstance(student.examples.origin, Scored)
    assert teacher.examples == task.examples and student.examples.origin.rows == task.unlabelled
    (alone,) = method.plan(hyper_parameters(method, small | {"alpha": 0.0}), setting).chain()
    assert alone.examples == task.examples, "claims without labels or scores teach nothing"
    with pytest.raises(BadInput, match="split_by = claim with unlabelled claims"):
        changed(given, {"claims.unlabelled": 1, "claims.split_by": "page"})


def test_only_in_training_a_page_that_the_search_missed_is_a_candidate(
    given: Experiment, fever: Path, workspace: Workspace, tmp_path: Path
) -> None:
    """The claims have no word of their pages, so that TF-IDF finds the first pages for all of them."""
    vague = [
        {"id": n, "label": "SUPPORTS", "claim": f"Unheard {n}.", "evidence_pages": [f"Page{n % PAGES}"]}
        for n in range(2 * PAGES)
    ]
    (tmp_path / "fever_labelled_dev.json").write_text(json.dumps(vague))
    (tmp_path / "wikipages.docs.txt").write_text((fever / "wikipages.docs.txt").read_text())
    prepared = prepare(changed(given, {"claims.path": str(tmp_path)}), workspace, Embedding(local=True))
    task = prepared.setting[Claims]
    train = open_values(workspace, task.examples)["gold"]
    assert (train.sum(axis=1) == 1).all()
    for suite in (task.dev, prepared.test):
        held_out = [each.kwargs["examples"] for each in suite.evaluators if "examples" in each.kwargs]
        golds = [open_values(workspace, examples)["gold"] for examples in held_out]
        assert golds and all(gold.sum() < len(gold) / 2 for gold in golds)


def test_a_wrong_folder_and_bad_values_are_refused(
    given: Experiment, fever: Path, tmp_path: Path, tiny_model: Path
) -> None:
    with pytest.raises(BadInput, match="--claims must name a folder"):
        fever_files(str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match=r"must hold the claims of FEVER: train\.jsonl"):
        fever_files(str(tmp_path))
    (tmp_path / "train.jsonl").write_text("")
    with pytest.raises(BadInput, match="must hold the pages of FEVER: wiki-pages"):
        fever_files(str(tmp_path))
    assert [path.name for path in fever_files(str(fever))[0]] == ["fever_labelled_dev.json"]
    for values, message in (
        ({"budget.fraction": 0.0}, "0 < fraction <= 1"),
        ({"budget.fraction": 1.5}, "0 < fraction <= 1"),
        ({"claims.path": "x", "claims.candidates": 1}, "candidates >= 2"),
        ({"claims.path": "x", "parallel.corpora": "de=x.tsv"}, "one source of text"),
        ({"claims.path": "x", "selection.by": "agreement"}, "select by their DCG"),
    ):
        with pytest.raises(BadInput, match=message):
            experiment_of(merged({}, values))
    with pytest.raises(BadInput, match="trained head"):
        changed(given, {"claims.cross_encoder": str(tiny_model)}).check()


def test_from_the_command_line(
    fever: Path, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = ["--root", str(tmp_path)]
    data = ["--claims", str(fever), "--set", "claims.candidates=3", "--teacher", str(tiny_model), *root]
    small = ["batch_size=16", "teacher_batch_size=16", "units=4", "teacher_units=4", "train_words=true"]
    chosen = [part for value in small for part in ("--set", value)]
    budget = ["--distil-budget", "32", "--max-length", "12", "--evaluations", "1", "--json"]
    command = ["train", "retrieval_kd", "--local", *data, *chosen, *budget, str(tmp_path / "report.json")]
    assert main(command) == 0
    output = capsys.readouterr().err
    assert "teacher: 32 examples, fever_dcg" in output and "retrieval_kd: 64 examples" in output
    folder = json.loads((tmp_path / "report.json").read_text())["folder"]
    assert main(["export", folder, str(tmp_path / "towers"), *root]) == 0
    assert main(["evaluate", folder, "--final", *data]) == 0
    assert "fever_recall_macro@3" in capsys.readouterr().out
    assert main(["evaluate", folder, "--set", "claims.split_by=page", *data]) == 2
    said = capsys.readouterr().err
    found = re.search(r"but (\d+) of the (\d+) dev claims are among the (\d+) that", said)
    assert found and 0 < int(found[1]) <= int(found[2]) and "claims.split_by=claim" in said
    suite = ["evaluate", folder, "--suite", "fever", "--data-root", str(fever), "--candidates", "3", *root]
    report = ["--json", str(tmp_path / "suite.json")]
    assert main([*suite, *report]) == 0
    assert "dev split by claim" in capsys.readouterr().err
    trained = json.loads((Path(folder) / "manifest.json").read_text())["metrics"]["fever_dcg"]
    figures = json.loads((tmp_path / "suite.json").read_text())["fever"]["model"]
    assert figures["DCG"] == pytest.approx(trained, abs=1e-6), "the same claims, ranked by the same scores"
    by_page = ["--set", "claims.split_by=page"]
    assert main([*command, *by_page]) == 0
    folder = json.loads((tmp_path / "report.json").read_text())["folder"]
    capsys.readouterr()
    assert main(["evaluate", folder, *suite[2:]]) == 0
    assert "dev split by page" in capsys.readouterr().err
    assert main([*command, "--fractions", "1,0.5"]) == 0
    rows = [point["rows"] for point in json.loads((tmp_path / "report.json").read_text())]
    assert (
        rows[1]["retrieval_kd"] == rows[0]["retrieval_kd"] // 2 and rows[0]["teacher"] == rows[1]["teacher"]
    )
    for wrong, message in (
        (["--claims", str(tmp_path / "none")], "--claims must name a folder"),
        (["--claims", ""], "--claims must name a folder"),
        (["--set", "alpha=2"], "0 <= alpha <= 1"),
        (["--set", "teacher_model=published"], "`teacher_model = published` needs a cross-encoder"),
        (["--set", f"claims.cross_encoder={tiny_model}"], "trained head"),
    ):
        assert main([*command, *wrong]) == 2
        assert message in capsys.readouterr().err


def test_more_candidates_than_documents_are_refused(given: Experiment, workspace: Workspace) -> None:
    with pytest.raises(BadInput, match="candidates <= documents"):
        prepare(changed(given, {"claims.candidates": PAGES + 1}), workspace, Embedding(local=True))


def test_incompatible_claims_and_methods_are_refused() -> None:
    claims = Experiment(data=(Claims("x"),))
    check_needs(load_method("retrieval_kd"), claims)
    with pytest.raises(BadInput, match="retrieval_kd must be given claims"):
        check_needs(load_method("retrieval_kd"), Experiment())
    with pytest.raises(BadInput, match=r"mse must be given unlabelled sentences.*\['claims', 'words'\]"):
        check_needs(load_method("mse"), claims)
