"""Parameter counts, against the published figures (Tables 1 and 7 of Ding et al.) and real students."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stillhouse.core.errors import BadInput
from stillhouse.plan.data import Model
from stillhouse.students.recurrent import RecurrentStudent
from stillhouse.students.sizes import count_parameters

MakeModel = Callable[[str], Model]


def write_config(folder: Path, kind: str) -> Model:
    from transformers import BertConfig, XLMRobertaConfig

    config: Any
    if kind == "xlm-r":
        config = XLMRobertaConfig(vocab_size=250002, max_position_embeddings=514, type_vocab_size=1)
    else:
        config = BertConfig(
            vocab_size=250037, hidden_size=384, intermediate_size=1536, num_attention_heads=12
        )
    config.save_pretrained(folder)
    return Model(sha256=kind, path=str(folder))


@pytest.mark.parametrize(
    ("unit", "bottleneck", "embedding", "encoder"),
    [
        (None, 0, 192_396_288, 85_054_464),
        (3, 128, 32_493_312, 21_263_616),
        (6, 256, 64_591_872, 42_527_232),
        (12, 128, 32_493_312, 85_054_464),
    ],
)
def test_xlm_r_base(unit: int | None, bottleneck: int, embedding: int, encoder: int, tmp_path: Path) -> None:
    found = count_parameters(write_config(tmp_path, "xlm-r"), unit, bottleneck)
    assert (found.embedding, found.encoder) == (embedding, encoder)
    assert (found.positions, found.small) == (514 * 768, 3 * 768)
    words = 250002 * bottleneck + bottleneck * 768 if bottleneck else 250002 * 768
    assert found.words == words


@pytest.mark.parametrize(("unit", "encoder"), [(None, 21_293_568), (6, 10_646_784), (3, 5_323_392)])
def test_multilingual_minilm(unit: int | None, encoder: int, tmp_path: Path) -> None:
    base = write_config(tmp_path, "minilm")
    found = count_parameters(base, unit)
    assert (found.embedding, found.encoder) == (96_210_816, encoder)
    assert f"{found.embedding / 1e6:.2f}" == "96.21"
    # Table 7 leaves the positions out where there is a bottleneck, and counts 35 words fewer.
    narrow = {b: count_parameters(base, 3, b).words - 35 * b for b in (128, 256)}
    assert [f"{words / 1e6:.2f}" for words in narrow.values()] == ["32.05", "64.10"]


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "mpnet", "modernbert"])
def test_the_count_is_that_of_the_student(kind: str, make_model: MakeModel) -> None:
    for unit, bottleneck in ((2, 8), (4, 0)):
        student = RecurrentStudent(make_model(kind), unit, bottleneck=bottleneck)
        found = count_parameters(make_model(kind), unit, bottleneck)
        assert found.total == sum(weight.numel() for weight in student.parameters())


def test_what_cannot_be_counted_is_refused(make_model: MakeModel) -> None:
    for arguments in ({"unit": 5}, {"unit": 0}, {"bottleneck": 32}):
        with pytest.raises(BadInput):
            count_parameters(make_model("bert"), **arguments)
