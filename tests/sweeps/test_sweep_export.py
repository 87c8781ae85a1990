"""A finished stage exported as a folder for stock sentence-transformers, and its model card."""

from pathlib import Path

import numpy as np
import pytest

from stillhouse.cli.main import main
from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.experiments.preparation import Prepared
from stillhouse.methods import load_method
from stillhouse.search.trial import Context, follow
from stillhouse.sweeps.export import export_stage, model_card_of
from stillhouse.training.models import encoder_in

VALUES = {"distil_batch_size": 16, "finetune_batch_size": 16, "projection": 8}
TEXTS = ["the cat sat on the mat", "river", "a sun and a moon " * 20]


@pytest.fixture
def folder(context: Context) -> Path:
    """The folder of a finished stage with a projection to 8 dimensions."""
    follow(VALUES, context, lambda report: None)
    return Workspace(Path(context.root)).path(context.plan(VALUES))


def test_stock_sentence_transformers_gives_the_same_vectors(folder: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    assert export_stage(folder, tmp_path / "export", card="# A card\n") > 0.9999
    loaded = SentenceTransformer(str(tmp_path / "export"), device="cpu").encode(TEXTS)
    assert loaded.shape == (3, 8)
    np.testing.assert_allclose(loaded, encoder_in(folder).encode(TEXTS), atol=1e-5)
    assert (tmp_path / "export" / "README.md").read_text() == "# A card\n"
    assert not list((tmp_path / "export").rglob("*.bin"))


def test_from_the_command_line(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = ["--root", str(tmp_path / "logs")]
    assert main(["export", str(folder), str(tmp_path / "out"), *root]) == 0
    assert "exported: " in capsys.readouterr().out and (tmp_path / "out" / "modules.json").is_file()
    assert main(["export", str(folder), "--format", "list", *root]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[0].split() == ["sentence-transformers", "yes"] and "no: no layers are tied" in listed[3]
    for wrong, rule in ((["--format", "coreml"], "format in"), ([], "is given a folder")):
        assert main(["export", str(folder), *wrong, *root]) == 2
        assert rule in capsys.readouterr().err
    assert main(["export", str(folder), str(tmp_path / "x"), "--format", "compact", *root]) == 2
    assert "It has the forms sentence-transformers, onnx" in capsys.readouterr().err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    assert main(["export", str(folder), str(tmp_path / "full"), *root]) == 2
    assert "An export replaces nothing but an export" in capsys.readouterr().err
    assert (tmp_path / "full" / "thesis.txt").read_text() == "precious"


def test_an_unfinished_stage_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "manifest.json").unlink()
    with pytest.raises(BadInput, match="unfinished"):
        export_stage(folder, tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_the_card_describes_the_student(context: Context, prepared: Prepared) -> None:
    figures = {"agreement_spearman_cosine": 0.9}
    tested = {
        who: {"metrics": figures, "cost": {"dim": 8.0, "megabytes": 1.0}} for who in ("teacher", "student")
    }
    card = model_card_of("small", load_method("ibkd"), prepared, context.plan(VALUES), VALUES, tested)
    for phrase in (
        "layers 0, 2 of",
        "arXiv:2311.05472",
        "8 dimensions",
        "projection",
        "16 tokens",
        "Licences",
    ):
        assert phrase in card
