"""Back-translation: texts into another language and back, by any two sequence-to-sequence models.

Each model translates in one direction, as those of Opus-MT do. A model that needs its languages as an
argument is refused: it would run without them, and return text in an arbitrary language.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from stillhouse.core.errors import BadInput
from stillhouse.students.backbone import quiet
from stillhouse.values.data import Model

BATCH = 32
"""Texts per batch, of similar length."""
_TOKENIZER_FILES = ("tokenizer.json", "*.spm", "*.model", "vocab.*")
_LONGEST = 512
"""Tokens per text, for models that do not state their maximum."""


def check_translator(model: Model) -> None:
    """Refuse a model that does not translate without further training; no weights are read.

    Raises:
        BadInput: Not a sequence-to-sequence model, a tokenizer that does not load, or a model that needs its
            languages as an argument.
    """
    from transformers import AutoConfig

    name = model.name or model.path
    try:
        config: Any = AutoConfig.from_pretrained(model.path, local_files_only=True)
    except ValueError as error:
        raise BadInput(f"{name} must be a model that transformers knows, but: {error}") from None
    if not config.is_encoder_decoder:
        raise BadInput(
            f"A translator must be a sequence-to-sequence model, but {name} is of type {config.model_type}."
        )
    if hasattr(_tokenizer(model), "src_lang"):
        raise BadInput(
            f"A translator must have one fixed direction, but {name} has several. Use a model for one pair "
            "of languages, such as those of Opus-MT."
        )


class Translator:
    """A translation model from a folder with safetensors weights, in evaluation mode and float32.

    Raises:
        BadInput: See `check_translator`.
    """

    def __init__(self, model: Model, device: str = "cpu") -> None:
        from transformers import AutoModelForSeq2SeqLM

        check_translator(model)
        self._tokenizer, self._device = _tokenizer(model), device
        with quiet():
            loaded: Any = AutoModelForSeq2SeqLM.from_pretrained(
                model.path, local_files_only=True, use_safetensors=True, dtype=torch.float32
            )
        self._model = loaded.to(device).eval()
        self._longest = int(getattr(loaded.config, "max_position_embeddings", None) or _LONGEST)

    def __call__(self, texts: Sequence[str], seed: int | None = None) -> list[str]:
        """Translate texts, in their order.

        With a seed every token is sampled from the model, so that another seed gives another wording; None
        decodes with the model's own settings. The global random state is left unchanged.
        """
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        translations = [""] * len(texts)
        decoding: dict[str, Any] = (
            {"do_sample": False} if seed is None else {"do_sample": True, "num_beams": 1}
        )
        with torch.random.fork_rng(devices=[]), torch.no_grad(), quiet():
            torch.manual_seed(seed or 0)
            for start in range(0, len(order), BATCH):
                rows = order[start : start + BATCH]
                translated = self._translate([texts[at] for at in rows], decoding)
                for at, text in zip(rows, translated, strict=True):
                    translations[at] = text
        return translations

    def _translate(self, texts: list[str], decoding: dict[str, Any]) -> list[str]:
        tokens = self._tokenizer(
            texts, return_tensors="pt", padding=True, truncation=True, max_length=self._longest
        )
        inputs = {name: tokens[name].to(self._device) for name in ("input_ids", "attention_mask")}
        # Output that does not end is truncated by the length of its own text, whatever else is in the batch.
        limit_B = (2 * inputs["attention_mask"].sum(dim=1) + 10).clamp(max=self._longest).tolist()
        ids_BT = self._model.generate(**inputs, **decoding, max_new_tokens=max(limit_B) - 1)
        cut = [ids[:limit] for ids, limit in zip(ids_BT.tolist(), limit_B, strict=True)]
        decoded: list[str] = self._tokenizer.batch_decode(cut, skip_special_tokens=True)
        return decoded


def _tokenizer(model: Model) -> Any:
    from transformers import AutoTokenizer

    files = [file.name for pattern in _TOKENIZER_FILES for file in Path(model.path).glob(pattern)]
    # From an empty folder transformers builds a tokenizer without words.
    if not files:
        raise BadInput(f"A translator's folder must hold its tokenizer, but {model.path} has none.")
    try:
        return AutoTokenizer.from_pretrained(Path(model.path), local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        raise BadInput(
            f"{model.name or model.path} must have a tokenizer that can be loaded, but: {reason} If it names "
            "sentencepiece or sacremoses, install them."
        ) from None
