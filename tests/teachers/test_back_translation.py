"""Back-translation with tiny random models."""

from pathlib import Path
from typing import Any

import pytest
import torch

from stillhouse.core.errors import BadInput
from stillhouse.teachers import back_translation
from stillhouse.teachers.back_translation import Translator, check_translator
from stillhouse.values.data import Model

WORDS = "<pad> </s> <unk> <s> the a cat dog river model sees likes of".split()
TEXTS = ["the cat sees a dog", "a river", "the model of the river likes a cat", ""]


def translator(folder: Path, seed: int = 0) -> Model:
    import tokenizers
    from tokenizers import models, pre_tokenizers, processors
    from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

    ids = {word: row for row, word in enumerate(WORDS)}
    backend = tokenizers.Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    wrap: Any = PreTrainedTokenizerFast
    wrap(
        tokenizer_object=backend, eos_token="</s>", pad_token="<pad>", unk_token="<unk>", bos_token="<s>"
    ).save_pretrained(folder)
    shape: dict[str, Any] = {"vocab_size": len(WORDS), "d_model": 16, "max_position_embeddings": 12}
    shape |= {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 3, "decoder_start_token_id": 0}
    for side in ("encoder", "decoder"):
        shape |= {f"{side}_layers": 1, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 32}
    config = BartConfig(**shape, init_std=0.5)
    config.forced_eos_token_id = None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = BartForConditionalGeneration(config)
    model.save_pretrained(folder)
    return Model(f"bart-{seed}", name="bart", path=str(folder))


def test_back_translation_gives_one_text_per_text_at_any_batch_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forth, back = (translator(tmp_path / name, seed) for seed, name in enumerate(("forth", "back")))
    check_translator(forth)
    before = torch.get_rng_state()
    pair = Translator(forth), Translator(back)
    there = pair[0](TEXTS)
    translated = pair[1](there)
    assert len(translated) == len(TEXTS) and all(isinstance(text, str) for text in translated)
    assert "<" not in "".join(translated) and len(set(translated)) > 1
    for size in (1, 3):
        monkeypatch.setattr(back_translation, "BATCH", size)
        assert pair[0](TEXTS) == there and pair[1](there) == translated
    drawn = [pair[0](TEXTS, seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_that_does_not_translate_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="must be a sequence-to-sequence model"):
        check_translator(Model("bert", path=str(tiny_model)))
    bare = translator(tmp_path / "bare")
    for file in (tmp_path / "bare").glob("*token*"):
        file.unlink()
    with pytest.raises(BadInput, match="must hold its tokenizer"):
        check_translator(bare)
