"""Tiny random encoders of several architectures as plain Hugging Face folders."""

import json
import shutil
import string
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.modeling_outputs import BaseModelOutput

from stillhouse.values.data import Model

LAYERS, HIDDEN, POSITIONS = 4, 32, 64
MakeModel = Callable[[str], Model]


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Return the folder of an architecture in `_config`, such as ``bert``, created on first use."""
    cache: dict[str, Model] = {}

    def make(kind: str) -> Model:
        if kind not in cache:
            folder = tmp_path_factory.mktemp(kind)
            _write_model(kind, folder)
            cache[kind] = Model(sha256=kind, name=f"tiny-{kind}", path=str(folder))
        return cache[kind]

    return make


def _write_model(kind: str, folder: Path) -> None:
    import torch
    from transformers import AutoModel, PreTrainedTokenizerFast

    tokenizer = _tokenizer()
    build: Any = AutoModel.from_config
    wrap: Any = PreTrainedTokenizerFast
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        build(_config(kind, len(tokenizer.get_vocab()))).save_pretrained(folder)
    wrap(
        tokenizer_object=tokenizer,
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)


def _tokenizer() -> Any:
    """Build WordPiece over letters; the padding token has id 1, as RoBERTa and MPNet assume."""
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, processors

    letters = string.ascii_lowercase + string.digits + ".,"
    pieces = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]", "the", "river", "model", *letters]
    words = {piece: row for row, piece in enumerate([*pieces, *(f"##{letter}" for letter in letters)])}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 2)]
    )
    return tokenizer


def _config(kind: str, vocabulary: int) -> Any:
    from transformers import (
        BertConfig,
        DistilBertConfig,
        EmbeddingGemma2TextConfig,
        Gemma3TextConfig,
        ModernBertConfig,
        MPNetConfig,
        Qwen3Config,
        RobertaConfig,
        T5Config,
        XLMRobertaConfig,
    )

    shape: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": POSITIONS,
        "initializer_range": 0.3,
        "pad_token_id": 1,
    }
    match kind:
        case "bert":
            return BertConfig(**shape)
        case "roberta":
            return RobertaConfig(**shape, type_vocab_size=1)
        case "xlm-roberta":
            return XLMRobertaConfig(**shape, type_vocab_size=1)
        case "mpnet":
            return MPNetConfig(**shape)
        case "modernbert":
            return ModernBertConfig(**shape, local_attention=8, cls_token_id=0, sep_token_id=2)
        case "t5":
            return T5Config(
                vocab_size=vocabulary,
                d_model=HIDDEN,
                d_kv=16,
                d_ff=48,
                num_layers=LAYERS,
                num_heads=2,
                pad_token_id=1,
                initializer_factor=1.0,
            )
        case "qwen3":
            return Qwen3Config(**shape, num_key_value_heads=1, head_dim=16)
        case "gemma3":  # EmbeddingGemma: a decoder of Gemma 3 that reads in both directions
            return Gemma3TextConfig(
                **shape,
                num_key_value_heads=1,
                head_dim=16,
                query_pre_attn_scalar=16,
                sliding_window=16,
                layer_types=["sliding_attention", "full_attention"] * 2,
                use_bidirectional_attention=True,
            )
        case "embedding-gemma2":
            return EmbeddingGemma2TextConfig(
                **shape,
                num_key_value_heads=1,
                head_dim=16,
                hidden_size_per_layer_input=8,
                sliding_window=8,
                embedding_dim=32,
            )
        case "distilbert":
            renamed = {
                "hidden_size": "dim",
                "num_hidden_layers": "n_layers",
                "num_attention_heads": "n_heads",
            }
            named = {renamed.get(name, name): value for name, value in shape.items()}
            return DistilBertConfig(**{**named, "hidden_dim": named.pop("intermediate_size")})
    raise AssertionError(kind)


class Session:
    """What optimum's `ORTModelForFeatureExtraction` does: the graph's inputs by name, its states returned."""

    def __init__(self, folder: str, subfolder: str, file_name: str, config: Any) -> None:
        import onnxruntime

        path = Path(folder, subfolder, file_name)
        self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self.config, self.dtype, self.device, self.path = config, torch.float32, torch.device("cpu"), path

    def __call__(self, **features: Any) -> Any:
        names = [each.name for each in self.session.get_inputs()]
        assert set(names) <= set(features), "optimum passes what the tokenizer gives, and nothing else"
        found = self.session.run(None, {name: features[name].numpy() for name in names})
        outputs = [each.name for each in self.session.get_outputs()]
        return SimpleNamespace(last_hidden_state=torch.from_numpy(found[outputs.index("last_hidden_state")]))

    forward = __call__


class OnnxModel(torch.nn.Module):
    """A module, as sentence-transformers expects."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session, self.config = session, session.config

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any = None, **_: Any) -> Any:
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        states = self.session(**given)
        return BaseModelOutput(last_hidden_state=states.last_hidden_state)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Sentence-transformers with its ONNX backend; the files that it has opened."""
    from sentence_transformers.backend.utils import backend_should_export

    opened: list[Path] = []

    def load(model_name_or_path: str, config: Any, task_name: str, **kwargs: Any) -> OnnxModel:
        names = Path(model_name_or_path), True, dict(kwargs), "model.onnx", "*.onnx", "ONNX"
        export, chosen = backend_should_export(*names)
        assert not export, "sentence-transformers would export the model anew"
        # These are all that optimum's class takes of what may be in a folder's settings.
        known = {"subfolder", "file_name", "revision", "token", "cache_dir", "local_files_only"}
        assert set(chosen) <= known | {"trust_remote_code"}, "optimum refuses an unknown argument"
        session = Session(model_name_or_path, chosen["subfolder"], chosen["file_name"], config)
        opened.append(session.path)
        return OnnxModel(session)

    monkeypatch.setattr("sentence_transformers.base.modules.transformer.load_onnx_model", load)
    return opened


@pytest.fixture
def lowered(make_model: MakeModel, tmp_path: Path) -> Model:
    """A model whose texts are lower-cased outside its tokenizer."""
    folder = tmp_path / "lowered"
    shutil.copytree(make_model("bert").path, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_bytes())
    tokenizer["normalizer"] = None
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 12, "do_lower_case": true}')
    return Model("lowered", path=str(folder))
