"""The ONNX folder as sentence-transformers' ONNX backend loads it.

The backend needs optimum-onnx, which wants an older transformers than the platform: it is in the environment
of `make peers`. Without it, everything of the installed sentence-transformers runs but optimum's class, in
whose place stands a session on the file that sentence-transformers has chosen.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_graphs import trace, write_once

from stillhouse.core.errors import BadInput
from stillhouse.core.types import FloatArray
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.folder_modules import ONNX, ONNX_INT8
from stillhouse.students.export.formats import write_format
from stillhouse.students.export.onnx import OnnxEncoder, check_onnx, graph_of
from stillhouse.students.recurrent import RecurrentStudent
from stillhouse.students.transformer import TransformerStudent
from stillhouse.values.data import Model

MakeModel = Callable[[str], Model]
PEERS = Path(__file__).resolve().parents[2] / ".venv-peers" / "bin" / "python"
TEXTS = ["The river.", "a model of the river, long enough to be cut in two", "z", "river river"]


@pytest.fixture(scope="module")
def exported(
    make_model: MakeModel, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str, Path], StudentEncoder]:
    """Return a function that copies the graph of a student, which is written once, into a folder."""
    made: dict[tuple[str, str], tuple[StudentEncoder, Path]] = {}

    def copied(kind: str, form: str, folder: Path) -> StudentEncoder:
        if (kind, form) not in made:
            graph = tmp_path_factory.mktemp("graph") / "graph"
            made[kind, form] = write(kind, form, make_model, graph), graph
        encoder, graph = made[kind, form]
        shutil.copytree(graph, folder)
        return encoder

    return copied


def write(kind: str, form: str, make_model: MakeModel, folder: Path) -> StudentEncoder:
    base = make_model("bert" if kind in ("recurrent", "cls") else kind)
    student: Any = (
        RecurrentStudent(base, unit=1, repeats=2, bottleneck=8)
        if kind == "recurrent"
        else TransformerStudent(base, layers=(2,), pooling="cls", normalize=False)
        if kind == "cls"
        # The first layer of ModernBERT differs from the others, and cannot be left out.
        else TransformerStudent(
            base, layers=(0 if kind == "modernbert" else 2,), projection=8, projection_activation="tanh"
        )
    )
    encoder = StudentEncoder(student, student.tokenizer.path, 12)
    with pytest.MonkeyPatch.context() as patch:
        if form == ONNX_INT8:  # Traced in a tenth of the time; test_formats.py quantises what is exported.
            trace(patch)
        write_format(form, encoder, folder, TEXTS)
    return encoder


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("bert", ONNX),
        pytest.param("modernbert", ONNX, marks=pytest.mark.long),
        pytest.param("recurrent", ONNX, marks=pytest.mark.long),  # Its graph is also in test_models.py.
        ("cls", ONNX_INT8),
    ],
)
def test_the_backend_gives_the_same_vectors(
    kind: str,
    form: str,
    backend: list[Path],
    exported: Callable[[str, str, Path], StudentEncoder],
    tmp_path: Path,
) -> None:
    from sentence_transformers import SentenceTransformer

    encoder = exported(kind, form, tmp_path / "graph")
    stock = SentenceTransformer(str(tmp_path / "graph"), backend="onnx", device="cpu")
    graph = OnnxEncoder(tmp_path / "graph")
    assert backend == [graph.graph] and stock.max_seq_length == 12
    # One text at a time: the activations of a batch are quantised together.
    expected = np.concatenate([graph.encode([text]) for text in TEXTS])
    found = np.concatenate([stock.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    if form == ONNX:
        np.testing.assert_allclose(stock.encode(TEXTS), encoder.encode(TEXTS), rtol=1e-3, atol=1e-5)


def vocabulary_alone(make_model: MakeModel, folder: Path, side: str) -> Model:
    """A base whose tokenizer is a ``vocab.txt``, as the first BERTs were published."""
    source = Path(make_model("bert").path)
    words = json.loads((source / "tokenizer.json").read_text())["model"]["vocab"]
    folder.mkdir()
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in sorted(words, key=words.__getitem__)))
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(source / name, folder / name)
    (folder / "tokenizer_config.json").write_text(json.dumps({"truncation_side": side}))
    return Model("vocabulary", path=str(folder))


def by_files_alone(folder: Path, texts: list[str], *, pooled: bool) -> FloatArray:
    """The vectors by onnxruntime and tokenizers; ``pooled`` as fastembed does, which pools the first output.

    It takes length and side from ``tokenizer_config.json``, and the padding token from there too.
    """
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    if pooled:
        tokenizer.enable_truncation(config["model_max_length"], direction=config["truncation_side"])
    padding = config["pad_token"]
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id(padding), pad_token=padding)
    encoded = tokenizer.encode_batch(texts)
    mask_BT = np.array([each.attention_mask for each in encoded])
    inputs = {"input_ids": np.array([each.ids for each in encoded]), "attention_mask": mask_BT}
    session = InferenceSession(str(folder / "onnx" / "model.onnx"))
    if not pooled:
        return np.asarray(session.run(["sentence_embedding"], inputs)[0])
    mask_BT1 = mask_BT[:, :, None]
    states_BH = (session.run(None, inputs)[0] * mask_BT1).sum(axis=1) / mask_BT1.sum(axis=1)
    return np.asarray(states_BH / np.linalg.norm(states_BH, axis=1, keepdims=True))


def test_clients_that_read_the_files_alone_give_the_students_vectors(
    make_model: MakeModel, backend: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of texts that are cut on the right or on the left, by a graph that is written once and then copied."""
    from sentence_transformers import SentenceTransformer

    write_once(monkeypatch, tmp_path / "model.onnx")
    trace(monkeypatch)
    texts = [*TEXTS, f"the river {'of a model ' * 66} at the end, 9"]
    assert len(texts[-1].split()) > 200
    for side in ("right", "left"):
        base, folder = vocabulary_alone(make_model, tmp_path / side, side), tmp_path / f"graph-{side}"
        encoder = StudentEncoder(TransformerStudent(base, layers=(2,)), base.path, 16)
        write_format(ONNX, encoder, folder, texts)
        assert json.loads((folder / "tokenizer_config.json").read_text())["truncation_side"] == side
        stock = SentenceTransformer(str(folder), backend="onnx", device="cpu").encode(texts)
        for found in (*(by_files_alone(folder, texts, pooled=pooled) for pooled in (False, True)), stock):
            cosines = (found * encoder.encode(texts)).sum(axis=1)
            assert cosines.min() > 0.99999, (side, cosines)


def test_modules_that_give_other_vectors_are_detected(
    exported: Callable[[str, str, Path], StudentEncoder], tmp_path: Path
) -> None:
    encoder = exported("bert", ONNX, tmp_path / "graph")
    file = tmp_path / "graph" / "1_Pooling" / "config.json"
    modes = json.loads(file.read_text())
    modes |= {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
    file.write_text(json.dumps(modes))
    with pytest.raises(BadInput, match="must give the evaluated vectors"):
        check_onnx(encoder, tmp_path / "graph", TEXTS)


PROGRAM = """
import sys
sys.modules["stillhouse"] = None  # importing it now fails, wherever it is installed
import numpy as np
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], backend="onnx", device="cpu")
assert type(model[0].auto_model).__name__ == "ORTModelForFeatureExtraction"
np.save(sys.argv[2], np.concatenate([model.encode([text]) for text in sys.argv[3:]]))
"""


@pytest.mark.skipif(not PEERS.exists(), reason="optimum is not installed: make peers")
@pytest.mark.parametrize("form", [ONNX, ONNX_INT8])
def test_optimum_itself_gives_the_same_vectors(
    form: str, exported: Callable[[str, str, Path], StudentEncoder], tmp_path: Path
) -> None:
    exported("bert", form, tmp_path / "graph")
    # The class of a tokenizer that transformers 5 saved, which the older one there does not know.
    config = tmp_path / "graph" / "tokenizer_config.json"
    config.write_text(config.read_text().replace("TokenizersBackend", "PreTrainedTokenizerFast"))
    arguments = [str(tmp_path / "graph"), str(tmp_path / "vectors.npy"), *TEXTS]
    ran = subprocess.run(
        [str(PEERS), "-I", "-c", PROGRAM, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    graph = OnnxEncoder(tmp_path / "graph")
    expected = np.concatenate([graph.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), expected, rtol=1e-4, atol=1e-5)


def test_the_graph_of_version_0_2_is_still_read(
    exported: Callable[[str, str, Path], StudentEncoder], tmp_path: Path
) -> None:
    exported("bert", ONNX, tmp_path / "graph")
    old = tmp_path / "old"
    old.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "sentence_bert_config.json"):
        (old / name).write_bytes((tmp_path / "graph" / name).read_bytes())
    (old / "model.onnx").write_bytes((tmp_path / "graph" / "onnx" / "model.onnx").read_bytes())
    assert graph_of(old) == old / "model.onnx"
    expected = OnnxEncoder(tmp_path / "graph").encode(TEXTS)
    np.testing.assert_array_equal(OnnxEncoder(old).encode(TEXTS), expected)
