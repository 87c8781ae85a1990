"""Teachers for benchmarks whose claim is not about the teacher: the real one cut short, and a tiny one."""

import tempfile
from pathlib import Path

import torch

from stillhouse.core.console import private_environment
from stillhouse.teachers.loading import load_sentence_transformer
from stillhouse.teachers.weights import resolve_model
from stillhouse.values.data import Model

private_environment()

TEACHER = "all-MiniLM-L6-v2"
TINY = 32
"""Dimension of the tiny teacher."""


def first_layers(folder: Path, layers: int) -> Model:
    """Return the teacher cut to its first layers, as a sentence-transformers folder."""
    model = load_sentence_transformer(resolve_model(TEACHER), "cpu")
    inner = model[0].auto_model
    if layers >= len(inner.encoder.layer):
        return resolve_model(TEACHER)
    inner.encoder.layer = torch.nn.ModuleList(inner.encoder.layer[:layers])
    inner.config.num_hidden_layers = layers
    model.save(str(folder / f"first-{layers}"), create_model_card=False)
    return resolve_model(str(folder / f"first-{layers}"))


def tiny_teacher(folder: Path) -> Model:
    """A random BERT of two layers and dimension 32 with the real teacher's tokenizer, pooling and form."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import AutoTokenizer, BertConfig, BertModel

    tokenizer = AutoTokenizer.from_pretrained(resolve_model(TEACHER).path, local_files_only=True)
    configuration = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=TINY,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * TINY,
        initializer_range=0.2,
    )
    with tempfile.TemporaryDirectory() as held, torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertModel(configuration).save_pretrained(held)
        tokenizer.save_pretrained(held)
        modules = [Transformer(held, max_seq_length=128), Pooling(TINY, pooling_mode="mean"), Normalize()]
        made = SentenceTransformer(modules=modules, device="cpu")
        made.save(str(folder / "tiny"), create_model_card=False)
    return resolve_model(str(folder / "tiny"))
