import json
import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from rows import each_row

from stillhouse.core.errors import BadInput
from stillhouse.core.types import FloatArray
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.sentence_transformers import check_parity, export_student
from stillhouse.students.transformer import TransformerStudent
from stillhouse.values.data import Model

MakeModel = Callable[[str], Model]
TEXTS = ["The river.", "a model of the river, long enough to be cut in two", "z", "the MODEL, 0 1 2 3 4"]
MAX_LENGTH = 12


def exported(student: TransformerStudent, folder: Path) -> StudentEncoder:
    export_student(student, student.tokenizer.path, MAX_LENGTH, folder)
    return StudentEncoder(student, student.tokenizer.path, MAX_LENGTH)


@each_row(
    ("pooling", "normalize", "projection"),
    [("mean", True, None), ("mean", False, 8), ("cls", True, 8), ("cls", False, None), ("max", False, 8)],
)
def test_the_stock_library_gives_the_same_vectors(
    pooling: str, normalize: bool, projection: int | None, make_model: MakeModel, tmp_path: Path
) -> None:
    student = TransformerStudent(
        make_model("bert"), layers=(0, 2), pooling=pooling, normalize=normalize, projection=projection
    )
    encoder = exported(student, tmp_path / "export")
    assert check_parity(encoder, tmp_path / "export", TEXTS, minimum=0.999999) <= 1 + 1e-6
    from sentence_transformers import SentenceTransformer

    stock = SentenceTransformer(str(tmp_path / "export"), device="cpu")
    np.testing.assert_allclose(stock.encode(TEXTS), encoder.encode(TEXTS), rtol=1e-4, atol=1e-5)
    assert stock.max_seq_length == MAX_LENGTH


@pytest.mark.parametrize("kind", ["roberta", "distilbert", "mpnet", "modernbert"])
def test_other_architectures_are_exported(kind: str, make_model: MakeModel, tmp_path: Path) -> None:
    student = TransformerStudent(make_model(kind), layers=(0, 1, 3), dropout=0.0, projection=8)
    encoder = exported(student, tmp_path / "export")
    assert check_parity(encoder, tmp_path / "export", TEXTS, minimum=0.999999) > 0.999999
    reloaded = TransformerStudent(Model(sha256="again", path=str(tmp_path / "export")))
    assert reloaded.backbone.state_dict().keys() == student.backbone.state_dict().keys()
    for name, tensor in student.backbone.state_dict().items():
        assert torch.equal(reloaded.backbone.state_dict()[name], tensor)


SCRIPT = """
import sys
sys.modules["stillhouse"] = None  # importing it now fails, wherever it is installed
import numpy as np
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu")
np.save(sys.argv[2], model.encode(sys.argv[3:]))
"""


def encode_without_stillhouse(folder: Path, file: Path) -> None:
    """In a process that has imported stock sentence-transformers, and cannot import the package again."""
    own = [name for name in sys.modules if name.partition(".")[0] == "stillhouse"]
    sys.modules.update(dict.fromkeys(own))  # type: ignore[arg-type]
    from sentence_transformers import SentenceTransformer

    np.save(file, SentenceTransformer(str(folder), device="cpu").encode(TEXTS))


def test_stock_code_without_stillhouse_gives_the_same_vectors(
    make_model: MakeModel, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a fork, where nothing is imported anew; the next test is the same in a program of its own."""
    encoder = exported(
        TransformerStudent(make_model("bert"), layers=(0, 2), projection=8), tmp_path / "export"
    )
    expected, file = encoder.encode(TEXTS), tmp_path / "vectors.npy"
    capfd.readouterr()
    arguments = (tmp_path / "export", file)
    fork = multiprocessing.get_context("fork")
    forked = fork.Process(target=encode_without_stillhouse, args=arguments, daemon=True)
    forked.start()
    forked.join(120)
    said = capfd.readouterr().err
    assert forked.exitcode == 0, said
    assert "newly initialized" not in said and "MISSING" not in said
    np.testing.assert_allclose(np.load(file), expected, rtol=0, atol=1e-5)


@pytest.mark.long
def test_a_process_without_stillhouse_gives_the_same_vectors(make_model: MakeModel, tmp_path: Path) -> None:
    student = TransformerStudent(make_model("bert"), layers=(0, 2), projection=8)
    encoder = exported(student, tmp_path / "export")
    arguments = [str(tmp_path / "export"), str(tmp_path / "vectors.npy"), *TEXTS]
    ended = subprocess.run(
        [sys.executable, "-I", "-c", SCRIPT, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    assert "newly initialized" not in ended.stderr and "MISSING" not in ended.stderr
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), encoder.encode(TEXTS), rtol=0, atol=1e-5)


def test_folder_layout(make_model: MakeModel, tmp_path: Path) -> None:
    student = TransformerStudent(make_model("bert"), layers=(0, 2), projection=8)
    export_student(student, student.tokenizer.path, MAX_LENGTH, tmp_path / "export")
    modules = json.loads((tmp_path / "export" / "modules.json").read_bytes())
    assert [module["path"] for module in modules] == ["", "1_Pooling", "2_Dense", "3_Normalize"]
    files = {str(file.relative_to(tmp_path / "export")) for file in (tmp_path / "export").rglob("*.*")}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= files
    assert not [file for file in files if file.endswith((".bin", ".pt", ".pkl"))]
    assert json.loads((tmp_path / "export" / "config.json").read_bytes())["num_hidden_layers"] == 2
    assert [folder.name for folder in tmp_path.iterdir()] == ["export"]
    modes = {file.stat().st_mode & 0o777 for file in (tmp_path / "export").rglob("*") if file.is_file()}
    assert modes == {tmp_path.joinpath("export").stat().st_mode & 0o666}


def test_exporting_does_not_change_the_student(make_model: MakeModel, tmp_path: Path) -> None:
    student = TransformerStudent(make_model("bert"), layers=(0, 2))
    before = {name: tensor.clone() for name, tensor in student.state_dict().items()}
    exported(student, tmp_path / "export")
    assert student.training and all(p.requires_grad for p in student.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in student.state_dict().items())


def test_an_export_is_replaced_atomically(make_model: MakeModel, tmp_path: Path) -> None:
    base = make_model("bert")
    exported(TransformerStudent(base, layers=(0, 2), projection=8), tmp_path / "export")
    (tmp_path / ".export.tmp").mkdir()  # of an export that was killed
    encoder = exported(TransformerStudent(base, layers=(1,)), tmp_path / "export")
    check_parity(encoder, tmp_path / "export", TEXTS)
    assert not (tmp_path / "export" / "2_Dense").exists()
    assert [folder.name for folder in tmp_path.iterdir()] == ["export"]


def test_a_failed_export_keeps_the_earlier_one(
    make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = exported(TransformerStudent(make_model("bert"), layers=(0, 2)), tmp_path / "export")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stillhouse.students.export.folder_modules.Pooling.write", full)
    with pytest.raises(BadInput, match="room on the disk"):
        exported(TransformerStudent(make_model("bert"), layers=(1,)), tmp_path / "export")
    assert [folder.name for folder in tmp_path.iterdir()] == ["export"]
    check_parity(encoder, tmp_path / "export", TEXTS)


def test_a_folder_with_other_content_is_refused(make_model: MakeModel, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    student = TransformerStudent(make_model("bert"))
    with pytest.raises(BadInput, match="replaces nothing but an export"):
        export_student(student, student.tokenizer.path, MAX_LENGTH, tmp_path)
    assert (tmp_path / "thesis.txt").exists()
    (tmp_path / "empty").mkdir()
    export_student(student, student.tokenizer.path, MAX_LENGTH, tmp_path / "empty")


def test_wrong_lengths_and_tokenizers_are_refused(make_model: MakeModel, tmp_path: Path) -> None:
    student = TransformerStudent(make_model("bert"))
    with pytest.raises(BadInput, match="positions=64"):
        export_student(student, student.tokenizer.path, 65, tmp_path / "export")
    with pytest.raises(BadInput, match="tokenizer"):
        export_student(student, tmp_path, MAX_LENGTH, tmp_path / "export")
    assert list(tmp_path.iterdir()) == []


class Changed:
    """An encoder whose vectors differ from those of the export."""

    def __init__(self, encoder: StudentEncoder, change: Callable[[FloatArray], FloatArray]) -> None:
        self.encoder, self.change = encoder, change

    def encode(self, texts: Sequence[str]) -> FloatArray:
        return self.change(self.encoder.encode(texts))


def _one_row_turned(vectors: FloatArray) -> FloatArray:
    return np.concatenate([vectors[:-1], vectors[-1:, ::-1]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_one_row_turned, "the MODEL"),
        (lambda vectors: vectors * 1.5, "lengths differ by up to 33"),
        (lambda vectors: vectors[:, :-1], "shape"),
        (lambda vectors: vectors * np.nan, "nan"),
    ],
)
def test_different_vectors_are_detected(
    change: Callable[[FloatArray], FloatArray], message: str, make_model: MakeModel, tmp_path: Path
) -> None:
    encoder = exported(TransformerStudent(make_model("bert"), layers=(0, 2)), tmp_path / "export")
    with pytest.raises(BadInput, match=message):
        check_parity(Changed(encoder, change), tmp_path / "export", TEXTS)


def test_a_cased_teacher_that_lowercases_outside_its_tokenizer(lowered: Model, tmp_path: Path) -> None:
    student = TransformerStudent(lowered, layers=(0, 2))
    encoder = exported(student, tmp_path / "export")
    assert check_parity(encoder, tmp_path / "export", TEXTS, minimum=0.999999) > 0.999999
