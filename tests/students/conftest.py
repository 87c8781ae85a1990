"""Tiny random encoders of several architectures as plain Hugging Face folders."""

import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stillhouse.plan.data import Model

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
        ModernBertConfig,
        MPNetConfig,
        RobertaConfig,
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
        case "distilbert":
            renamed = {
                "hidden_size": "dim",
                "num_hidden_layers": "n_layers",
                "num_attention_heads": "n_heads",
            }
            named = {renamed.get(name, name): value for name, value in shape.items()}
            return DistilBertConfig(**{**named, "hidden_dim": named.pop("intermediate_size")})
    raise AssertionError(kind)
