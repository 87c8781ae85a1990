"""Back-translation: a text into another language and back again, by any two sequence-to-sequence models.

Each model knows one direction, as those of Opus-MT do. One that must be told its languages is refused: it
would be run without them, and give text in whatever language it likes.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from stillhouse.core.errors import BadInput, require
from stillhouse.plan.data import Model
from stillhouse.students.backbone import quiet

BATCH = 32
_TOKENIZER_FILES = ("tokenizer.json", "*.spm", "*.model", "vocab.*")
_LONGEST = 512
"""Tokens a text, for models that do not say how many they take."""


def check_translator(model: Model) -> None:
    """Refuse a model that does not translate by itself; no weights are read.

    Raises:
        BadInput: It is no sequence-to-sequence model, has no tokenizer that loads here, or wants to be told
            its languages.
    """
    from transformers import AutoConfig

    name = model.name or model.path
    try:
        config: Any = AutoConfig.from_pretrained(model.path, local_files_only=True)
    except ValueError as error:
        raise BadInput(f"{name} must be a model that transformers knows, but: {error}") from None
    require(
        bool(config.is_encoder_decoder),
        "a translator is a sequence-to-sequence model",
        model=name,
        architecture=config.model_type,
    )
    require(
        not hasattr(_tokenizer(model), "src_lang"),
        "a translator knows its one direction",
        model=name,
        remedy="Take a model of two languages, such as those of Opus-MT.",
    )


def back_translated(
    texts: Sequence[str], there: "Translator", back: "Translator", *, seed: int | None = None
) -> list[str]:
    """Texts, there and back; see `Translator` for the seed."""
    return back(there(texts, seed), seed)


class Translator:
    """One model, in evaluation mode and float32.

    Args:
        model: A folder with safetensors weights.
        device: Where it runs.
        batch: Texts at once; those of about one length go together.

    Raises:
        BadInput: See `check_translator`.
    """

    def __init__(self, model: Model, device: str = "cpu", batch: int = BATCH) -> None:
        from transformers import AutoModelForSeq2SeqLM

        check_translator(model)
        self._tokenizer, self._device, self._batch = _tokenizer(model), device, batch
        with quiet():
            loaded: Any = AutoModelForSeq2SeqLM.from_pretrained(
                model.path, local_files_only=True, use_safetensors=True, dtype=torch.float32
            )
        self._model = loaded.to(device).eval()
        self._longest = int(getattr(loaded.config, "max_position_embeddings", None) or _LONGEST)

    def __call__(self, texts: Sequence[str], seed: int | None = None) -> list[str]:
        """Translations, in the order of the texts.

        Args:
            texts: In the language that the model reads.
            seed: Draw every token from the model, so that another seed says it in other words; None decodes
                as the model's own settings say. The global random state is left as it was.
        """
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        said = [""] * len(texts)
        how: dict[str, Any] = {"do_sample": False} if seed is None else {"do_sample": True, "num_beams": 1}
        with torch.random.fork_rng(devices=[]), torch.no_grad(), quiet():
            torch.manual_seed(seed or 0)
            for rows in _batches(order, self._batch):
                for at, text in zip(rows, self._translate([texts[at] for at in rows], how), strict=True):
                    said[at] = text
        return said

    def _translate(self, texts: list[str], how: dict[str, Any]) -> list[str]:
        tokens = self._tokenizer(
            texts, return_tensors="pt", padding=True, truncation=True, max_length=self._longest
        )
        inputs = {name: tokens[name].to(self._device) for name in ("input_ids", "attention_mask")}
        # A model that does not end is cut, each text by its own length: the rest of the batch is no matter.
        most_B = (2 * inputs["attention_mask"].sum(dim=1) + 10).clamp(max=self._longest).tolist()
        ids_BT = self._model.generate(**inputs, **how, max_new_tokens=max(most_B) - 1)
        cut = [ids[:most] for ids, most in zip(ids_BT.tolist(), most_B, strict=True)]
        decoded: list[str] = self._tokenizer.batch_decode(cut, skip_special_tokens=True)
        return decoded


def _batches(order: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _tokenizer(model: Model) -> Any:
    from transformers import AutoTokenizer

    files = [file.name for pattern in _TOKENIZER_FILES for file in Path(model.path).glob(pattern)]
    # Of an empty folder transformers makes a tokenizer without words.
    require(bool(files), "a translator's folder holds its tokenizer", model=model.name or model.path)
    try:
        return AutoTokenizer.from_pretrained(Path(model.path), local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, ImportError) as error:
        said = next(iter(str(error).strip().splitlines()), "")
        raise BadInput(
            f"{model.name or model.path} must have a tokenizer that loads here, but: {said} Where it names "
            "sentencepiece or sacremoses, install them."
        ) from None
