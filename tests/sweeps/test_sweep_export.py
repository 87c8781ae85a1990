"""A finished stage exported as a folder for stock sentence-transformers, and its model card."""

import functools
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from card_snippets import run_snippets

from stillhouse.api import export as export_from_python
from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.errors import BadInput
from stillhouse.core.integrity import CHECKSUMS
from stillhouse.experiments.preparation import Prepared
from stillhouse.methods import load_method
from stillhouse.reports.model_card import Card, Deployed, model_card
from stillhouse.search.trial import Context, follow
from stillhouse.sweeps import stage_export as export_module
from stillhouse.sweeps.export_check import compared_texts
from stillhouse.sweeps.results import Exported
from stillhouse.sweeps.stage_export import card_of_best, export_stage, exported
from stillhouse.training.models import encoder_in, find_model

VALUES = {"distil_batch_size": 16, "finetune_batch_size": 16, "projection": 8}
NAME = "my export"
TEXTS = ["the cat sat on the mat", "river", "a sun and a moon " * 20]


@pytest.fixture(scope="module")
def trained(shared_context: Context) -> Path:
    """The folder of a finished stage with a projection to 8 dimensions, which tests only read."""
    follow(VALUES, shared_context, lambda report: None)
    return Workspace(Path(shared_context.root)).path(shared_context.plan(VALUES))


@pytest.fixture
def folder(trained: Path, shared_context: Context, tmp_path: Path) -> Path:
    """The stage in a workspace of the test's own."""
    own = tmp_path / "runs"
    shutil.copytree(shared_context.root, own)
    return own / trained.relative_to(shared_context.root)


@pytest.fixture(scope="module")
def export(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exported]:
    """Return a function that exports the stage in a form, once for all tests, which only read it."""

    @functools.cache
    def written(form: str) -> Exported:
        return exported(trained, tmp_path_factory.mktemp(form) / NAME, form=form)

    return written


@pytest.fixture(scope="module")
def export_in(export: Callable[[str], Exported]) -> Callable[[str, Path], Path]:
    """Return a function that copies the stage's export in a form into a folder."""

    def copied(form: str, into: Path) -> Path:
        shutil.copytree(export(form).folder, into / NAME)
        return into / NAME

    return copied


def test_stock_sentence_transformers_gives_the_same_vectors(trained: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    assert export_stage(trained, tmp_path / "export").parity > 0.9999
    loaded = SentenceTransformer(str(tmp_path / "export"), device="cpu").encode(TEXTS)
    assert loaded.shape == (3, 8)
    np.testing.assert_allclose(loaded, encoder_in(trained).encode(TEXTS), atol=1e-5)
    assert not list((tmp_path / "export").rglob("*.bin"))


def test_from_the_command_line(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = ["--root", str(tmp_path / "logs")]
    assert main(["export", str(trained), str(tmp_path / "out"), *root]) == 0
    assert "exported: " in capsys.readouterr().out and (tmp_path / "out" / "modules.json").is_file()
    assert main(["export", str(trained), "--format", "list", *root]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[0].split() == ["sentence-transformers", "yes"] and "no: no layers are tied" in listed[3]
    for wrong, rule in ((["--format", "coreml"], "format in"), ([], "is given a folder")):
        assert main(["export", str(trained), *wrong, *root]) == 2
        assert rule in capsys.readouterr().err
    assert main(["export", str(trained), str(tmp_path / "x"), "--format", "compact", *root]) == 2
    assert "It has the forms sentence-transformers, onnx" in capsys.readouterr().err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    assert main(["export", str(trained), str(tmp_path / "full"), *root]) == 2
    assert "An export replaces nothing but an export" in capsys.readouterr().err
    assert (tmp_path / "full" / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize("form", ["sentence-transformers", "onnx-int8"])
def test_an_export_that_has_changed_is_refused(
    trained: Path, tmp_path: Path, form: str, export_in: Callable[[str, Path], Path]
) -> None:
    target = export_in(form, tmp_path)
    command = ["sha256sum", "--check", "--quiet", CHECKSUMS]
    checked = subprocess.run(command, cwd=target, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    (target / "README.md").write_text("my own words")
    find_model(str(target), Workspace(tmp_path / "runs"))
    path = next(target.rglob("*.safetensors" if form == "sentence-transformers" else "*.onnx"))
    whole = path.read_bytes()
    content = bytearray(whole)
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    for name in (target, *target.rglob("*.onnx")):
        with pytest.raises(BadInput, match=rf"must be as it was written, but .*{path.name} has changed"):
            find_model(str(name), Workspace(tmp_path / "runs"))
    if form == "onnx-int8":  # Writing a graph takes seconds.
        path.write_bytes(whole)
    else:
        export_stage(trained, target)
    find_model(str(target), Workspace(tmp_path / "runs"))
    for listed in (f"../{NAME}/README.md", "/dev/zero", ""):
        (target / CHECKSUMS).write_text(f"{'0' * 64}  {listed}\n")
        with pytest.raises(BadInput, match="must be as it was written"):
            find_model(str(target), Workspace(tmp_path / "runs"))


def test_eight_bits_are_compared_on_held_out_texts_and_state_their_loss_on_dev(
    trained: Path,
    tmp_path: Path,
    export: Callable[[str], Exported],
    export_in: Callable[[str, Path], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, copy = export("onnx-int8"), export_in("onnx-int8", tmp_path)
    manifest = read_manifest(trained)
    assert made.dev is not None and made.dev.trained == pytest.approx(
        manifest["metrics"][made.dev.figure], abs=1e-3
    )
    assert str(made.dev) in str(made) and str(made.dev) in (made.folder / "README.md").read_text()
    length, texts = manifest["max_length"], compared_texts(trained, manifest["max_length"])
    tokenizer, (*held_out, one, other) = encoder_in(trained).tokenizer, texts
    assert (
        len(held_out) > 5 and one.split()[:3] != other.split()[:3] and one.split()[-3:] != other.split()[-3:]
    )
    assert min(tokenizer.whole_lengths([one, other])) > length
    # An export that fails is not there, and leaves the one before as it was.
    before = (copy / CHECKSUMS).read_bytes()
    monkeypatch.setattr(export_module, "write_format", lambda *_: refuse())
    for target in (copy, tmp_path / "new"):
        with pytest.raises(BadInput, match="must give the evaluated vectors"):
            export_stage(trained, target, form="onnx-int8")
    assert (copy / CHECKSUMS).read_bytes() == before and not (tmp_path / "new").exists()
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith(".")) == []


def refuse() -> float:
    raise BadInput("An export must give the evaluated vectors.")


def test_an_unfinished_stage_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "manifest.json").unlink()
    with pytest.raises(BadInput, match="unfinished"):
        export_stage(folder, tmp_path / "export")
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize("form", ["sentence-transformers", "onnx-int8"])
def test_the_snippet_of_a_card_runs_as_it_stands(
    form: str,
    trained: Path,
    tmp_path: Path,
    export_in: Callable[[str, Path], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (export_in(form, tmp_path) / "README.md").read_text()
    # The ONNX backend of sentence-transformers needs optimum; tests/students/test_card_snippets.py runs it.
    program, _, rest = text.partition("Or with sentence-transformers and optimum-onnx")
    assert bool(rest) == (form != "sentence-transformers")
    expected = encoder_in(trained).encode(["First sentence.", "Second sentence."])
    (names,) = run_snippets(program)
    np.testing.assert_allclose(names["vectors"], expected, atol=0.1 if form == "onnx-int8" else 1e-4)
    assert '"my export' in text


def test_the_card_of_a_stage(
    trained: Path, tmp_path: Path, tiny_model: Path, export_in: Callable[[str, Path], Path]
) -> None:
    card = (export_in("sentence-transformers", tmp_path) / "README.md").read_text()
    manifest = json.loads((trained / "manifest.json").read_bytes())
    name, value = next(iter(manifest["metrics"].items()))
    assert re.search(rf"\| {re.escape(name)} \| \d+ pairs, dev split \| {value:.4f} \|", card), card
    pairs = next(iter(json.loads((trained / "facts.json").read_bytes())["figures"].values()))["count"]
    assert f"| {pairs:,} pairs, dev split |" in card and "held-out texts" in card
    for said in (
        f"distilled from `{tiny_model.name}` with SupervisedBottleneck",
        "words-train, query, passage: 166 texts and 39 labelled pairs.",
        f"layers 0, 2 of {tiny_model.name}; mean pooling, vectors of length 1 |",
        "| nce.temperature | 0.05 |",
        "| batch_size | 16 |",
        "| optimizer.learning_rate | ",
        manifest["fingerprint"],
        "* teacher `",
        "| Maximum length | 16 tokens |",
    ):
        assert said in card, said
    assert re.search(r"Times were measured on .+, \d+ of \d+ cores used, a load of ", card)
    assert re.search(r"\| megabytes_on_disk \| [\d.]+ \|", card)


def test_the_card_says_what_the_student_is(shared_context: Context, embedded: tuple[Path, Prepared]) -> None:
    figures = {"agreement_spearman_cosine": 0.9}
    tested = {
        who: {"metrics": figures, "cost": {"dim": 8.0, "megabytes": 1.0}} for who in ("teacher", "student")
    }
    known = card_of_best(
        "small",
        load_method("ibkd"),
        embedded[1],
        shared_context.plan(VALUES),
        VALUES,
        {**tested, "TF-IDF": {"metrics": figures, "cost": {}}},
        Workspace(Path(shared_context.root)),
    )
    export = Deployed("sentence-transformers", "small", dim=8, max_length=16, parity=1.0)
    card = model_card(known, export)
    for said in ("layers 0, 2 of", "arXiv:2311.05472", "8 dimensions", "projection", "16 tokens", "Licences"):
        assert said in card
    pairs = known.facts["agreement"]["count"]
    assert f"| agreement_spearman_cosine | {pairs:,} pairs, test split | 0.9000 | 0.9000 | 0.9000 |" in card
    assert list(known.sizes) == ["teacher", "student"]


def test_every_export_of_a_best_student_has_its_sweeps_card(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = folder.parents[1]
    sweep = runs / "sweeps" / "library"
    sweep.mkdir(parents=True)
    (sweep / "sweep.json").write_text("{}")
    (sweep / "export.json").write_text(json.dumps({"stage": str(folder)}))
    card = Card(name="library", teacher="a teacher", student="a student", method="IBKD", corpus="books")
    (sweep / "card.json").write_text(json.dumps(card.as_json()))
    root = ["--root", str(runs)]
    for name in ("library", folder.name, str(folder)):
        assert main(["export", name, str(tmp_path / "out"), *root]) == 0
        assert "# library\n" in (tmp_path / "out" / "README.md").read_text()
    assert main(["export", "libary", str(tmp_path / "out"), *root]) == 2
    assert "Did you mean library?" in capsys.readouterr().err
    assert export_from_python("library", tmp_path / "again", root=runs).cosine > 0.9999
