from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rows import each_row
from safetensors.torch import load_file, save_file

from stillhouse.core.errors import BadInput
from stillhouse.core.types import Encoding, Tokens
from stillhouse.students.encoder import StudentEncoder
from stillhouse.students.export.compact import read_compact, write_compact
from stillhouse.students.export.sentence_transformers import check_parity, export_student
from stillhouse.students.recurrent import RecurrentStudent
from stillhouse.students.transformer import TransformerStudent, load_weights
from stillhouse.values.data import Model

MakeModel = Callable[[str], Model]
KINDS = ["bert", "roberta", "xlm-roberta", "distilbert", "mpnet", "modernbert"]
TEXTS = ["The river.", "a model of the river, long enough to be cut in two", "z", "the MODEL, 0 1 2 3 4"]
MAX_LENGTH = 12


def tokens(*rows: list[int], width: int = 0) -> Tokens:
    width = max(width, *map(len, rows))
    ids_BT = torch.tensor([row + [1] * (width - len(row)) for row in rows])
    mask_BT = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return Tokens(ids_BT, mask_BT)


TOKENS = tokens([0, 7, 8, 9, 2], [0, 20, 2], [0, 30, 31, 32, 33, 34, 2])


def encoding(student: RecurrentStudent | TransformerStudent, batch: Tokens = TOKENS) -> Encoding:
    with torch.no_grad():
        found: Encoding = student.eval()(batch)
    return found


def moved(student: Any) -> Any:
    """Return the student with every weight changed, as by training."""
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in student.parameters():
            weight.add_(0.02 * torch.randn(weight.shape, generator=draw))
    return student


@each_row("kind", KINDS)
@each_row("bottleneck", [0, 8])
def test_padding_changes_nothing(kind: str, bottleneck: int, make_model: MakeModel) -> None:
    student = RecurrentStudent(make_model(kind), 2, bottleneck=bottleneck)
    alone = encoding(student, tokens([0, 20, 2])).embedding_BD
    torch.testing.assert_close(encoding(student).embedding_BD[1:2], alone, rtol=0, atol=2e-5)
    wide = encoding(student, tokens([0, 20, 2], width=40)).embedding_BD
    torch.testing.assert_close(wide, alone, rtol=0, atol=2e-5)


def test_a_bottleneck_can_start_at_the_best_low_rank_table(make_model: MakeModel) -> None:
    """It is the best approximation of its rank, for the base's table and for an earlier student's."""
    base = make_model("bert")
    near = RecurrentStudent(base, 2, bottleneck=8, bottleneck_start="svd")

    def nearest(table: torch.Tensor) -> torch.Tensor:
        left, values, right = torch.linalg.svd(table.double(), full_matrices=False)
        return torch.as_tensor((left[:, :8] * values[:8]) @ right[:8])

    def product(student: RecurrentStudent) -> torch.Tensor:
        whole: torch.Tensor = student.backbone.get_input_embeddings().multiplied_VH().detach()
        return torch.as_tensor(whole.double())

    table = TransformerStudent(base).backbone.get_input_embeddings().weight.detach()
    torch.testing.assert_close(product(near), nearest(table), rtol=0, atol=1e-5)
    earlier = moved(TransformerStudent(base))
    near.load_state_dict(near.adapted(earlier.state_dict()), strict=False)
    later = earlier.backbone.get_input_embeddings().weight.detach()
    torch.testing.assert_close(product(near), nearest(later), rtol=0, atol=1e-5)


@each_row("kind", ["bert", "xlm-roberta", "distilbert", "mpnet"])
def test_the_first_layers_are_applied_repeatedly(kind: str, make_model: MakeModel) -> None:
    base = make_model(kind)
    whole, once = encoding(TransformerStudent(base, normalize=False)), encoding(RecurrentStudent(base, 2, 1))
    assert [torch.equal(a, b) for a, b in zip(once.hidden, whole.hidden, strict=False)] == [True] * 3
    ends = encoding(RecurrentStudent(base, 2, 1, layers=(0, 3))).embedding_BD
    assert torch.equal(ends, encoding(TransformerStudent(base, (0, 3), normalize=False)).embedding_BD)
    everything = encoding(RecurrentStudent(base, 4))
    assert torch.equal(everything.embedding_BD, whole.embedding_BD)
    twice = RecurrentStudent(base, 2)
    assert (twice.repeats, twice.dim, len(encoding(twice).hidden)) == (2, 32, 5)
    by_hand = TransformerStudent(base, normalize=False)
    state = by_hand.state_dict()
    for name in [name for name in state if ".layer." in name]:
        head, _, rest = name.partition(".layer.")
        place, _, rest = rest.partition(".")
        state[name] = state[f"{head}.layer.{int(place) % 2}.{rest}"]
    by_hand.load_state_dict(state)
    for ours, theirs in zip(encoding(twice).hidden, encoding(by_hand).hidden, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


@each_row("kind", KINDS)
@each_row("bottleneck", [0, 8])
def test_without_repeats_the_embedding_layer_is_pooled(
    kind: str, bottleneck: int, make_model: MakeModel
) -> None:
    base = make_model(kind)
    student = RecurrentStudent(base, 2, repeats=0, bottleneck=bottleneck)
    found = encoding(student)
    assert len(found.hidden) == 1
    mask = TOKENS.attention_mask_BT.unsqueeze(-1)
    mean_BH = (found.hidden[0] * mask).sum(1) / mask.sum(1)
    torch.testing.assert_close(found.embedding_BD, mean_BH, rtol=0, atol=1e-6)
    if kind != "modernbert" and not bottleneck:  # ModernBERT ends with a norm outside the layers.
        assert torch.equal(found.hidden[0], encoding(TransformerStudent(base)).hidden[0])
    student.train()(TOKENS).embedding_BD.square().sum().backward()
    trained = {name for name, weight in student.named_parameters() if weight.requires_grad}
    assert trained == {name for name, weight in student.named_parameters() if weight.grad is not None}
    assert not [name for name in trained if ".layer" in name and ".layers.norm" not in name]


@each_row("kind", KINDS)
def test_gradient_reaches_every_weight_once(kind: str, make_model: MakeModel) -> None:
    student = RecurrentStudent(make_model(kind), 2, bottleneck=8, dropout=0.0)
    (student(TOKENS).embedding_BD * torch.linspace(-1, 1, 32)).square().sum().backward()
    assert [name for name, weight in student.named_parameters() if weight.grad is None] == []
    assert sum(p.numel() for p in student.parameters()) == sum(
        t.numel() for t in student.state_dict().values()
    )


def test_the_tied_gradient_sums_all_repeats(make_model: MakeModel) -> None:
    student = RecurrentStudent(make_model("bert"), 1, repeats=3, dropout=0.0, bottleneck=8)
    student.zero_grad()
    loss = student(TOKENS).embedding_BD.square().mean()
    loss.backward()
    weight = student.backbone.encoder.get_submodule("layer.0.output.dense").weight
    slope, step = weight.grad[0, 0].item(), 1e-2
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            weight[0, 0] += sign * step
            values.append(student(TOKENS).embedding_BD.square().mean().item())
            weight[0, 0] -= sign * step
    assert (values[0] - values[1]) / (2 * step) == pytest.approx(slope, rel=0.05, abs=1e-5)


def test_the_bottleneck_factorises_only_the_word_embeddings(make_model: MakeModel) -> None:
    base = make_model("bert")
    student, whole = RecurrentStudent(base, 2, bottleneck=8), RecurrentStudent(base, 2)
    narrow = {n: t for n, t in student.state_dict().items() if "word_embeddings" in n}
    words = whole.backbone.get_input_embeddings().weight
    assert {n.rsplit("embeddings.", 1)[1]: tuple(t.shape) for n, t in narrow.items()} == {
        "narrow.weight": (words.shape[0], 8),
        "widen.weight": (32, 8),
    }
    for name, tensor in whole.state_dict().items():
        if "word_embeddings" not in name:
            assert torch.equal(student.state_dict()[name], tensor)
    table = student.backbone.get_input_embeddings().multiplied_VH()
    assert table.std().item() == pytest.approx(0.3, rel=0.25)  # the tiny model's initializer_range
    torch.testing.assert_close(student.embed_words(torch.tensor([7, 8])), table[7:9])
    again, other = RecurrentStudent(base, 2, bottleneck=8), RecurrentStudent(base, 2, bottleneck=8, seed=1)
    assert torch.equal(encoding(again).embedding_BD, encoding(student).embedding_BD)
    assert not torch.equal(encoding(other).embedding_BD, encoding(student).embedding_BD)


@each_row("kind", KINDS)
def test_precomputed_word_embeddings_change_nothing(kind: str, make_model: MakeModel) -> None:
    student = RecurrentStudent(make_model(kind), 2, bottleneck=8).eval()
    with torch.no_grad():
        given = student(TOKENS, student.embed_words(TOKENS.input_ids_BT)).embedding_BD
    torch.testing.assert_close(given, encoding(student).embedding_BD, atol=1e-5, rtol=1e-5)


@each_row("kind", ["bert", "xlm-roberta", "distilbert", "mpnet"])
@each_row(
    ("bottleneck", "changes"),
    [
        (0, {"normalize": False}),
        (8, {"pooling": "max", "normalize": True}),
        (8, {"layers": (0, 3), "repeats": 1, "projection": 48}),
    ],
)
def test_the_stock_library_gives_the_same_vectors(
    kind: str, bottleneck: int, changes: dict[str, Any], make_model: MakeModel, tmp_path: Path
) -> None:
    base = make_model(kind)
    student = moved(RecurrentStudent(base, 2, bottleneck=bottleneck, **changes))
    export_student(student, base.path, MAX_LENGTH, tmp_path / "export")
    encoder = StudentEncoder(student, base.path, MAX_LENGTH)
    assert check_parity(encoder, tmp_path / "export", TEXTS, minimum=0.99999) > 0.99999
    assert student.training


def test_the_compact_form_round_trips(make_model: MakeModel, tmp_path: Path) -> None:
    base = make_model("bert")
    kept_layer: dict[str, Any] = {"layers": (1, 3), "projection": 48}
    cases: list[tuple[int, str, dict[str, Any]]] = [(3, "cls", kept_layer), (0, "mean", {})]
    for repeats, pooling, kept in cases:
        student = moved(RecurrentStudent(base, 2, repeats, 8, pooling=pooling, normalize=True, **kept))
        write_compact(student, base.path, MAX_LENGTH, tmp_path / "compact")
        again, length = read_compact(tmp_path / "compact")
        assert (length, again.unit, again.repeats, again.bottleneck) == (MAX_LENGTH, 2, repeats, 8)
        before = StudentEncoder(student, base.path, MAX_LENGTH).encode(TEXTS)
        assert (StudentEncoder(again, tmp_path / "compact", length).encode(TEXTS) == before).all()
    saved = load_file(tmp_path / "compact" / "model.safetensors")
    assert sum(t.numel() for t in saved.values()) == sum(p.numel() for p in student.parameters())
    assert [folder.name for folder in tmp_path.iterdir()] == ["compact"]


def test_unwritable_and_unreadable_forms_are_refused(make_model: MakeModel, tmp_path: Path) -> None:
    base = make_model("bert")
    student = RecurrentStudent(base, 2, 0)
    with pytest.raises(BadInput, match="repeats >= 1"):
        export_student(student, base.path, MAX_LENGTH, tmp_path / "export")
    with pytest.raises(BadInput, match="unrolled"):
        RecurrentStudent(make_model("modernbert"), 2).stock()
    with pytest.raises(BadInput, match="positions=64"):
        write_compact(student, base.path, 65, tmp_path / "compact")
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match="replaces nothing but"):
        write_compact(student, base.path, MAX_LENGTH, tmp_path)
    with pytest.raises(BadInput, match="must exist"):
        read_compact(tmp_path)
    write_compact(student, base.path, MAX_LENGTH, tmp_path / "compact")
    (tmp_path / "compact" / "recurrent.json").write_text('{"format": 2}')
    with pytest.raises(BadInput, match="format"):
        read_compact(tmp_path / "compact")


def test_weights_carry_over_between_stages(make_model: MakeModel, tmp_path: Path) -> None:
    base = make_model("roberta")
    assistant = moved(TransformerStudent(base, projection=8))
    aligned = RecurrentStudent(base, 2, repeats=0, bottleneck=8)
    adopted = aligned.adapted(assistant.state_dict())
    fresh_words = {n for n in aligned.state_dict() if "word_embeddings" in n}
    assert set(adopted) == set(aligned.state_dict()) - fresh_words
    aligned.load_state_dict(adopted, strict=False)
    assert all(torch.equal(aligned.state_dict()[name], assistant.state_dict()[name]) for name in adopted)
    student = RecurrentStudent(base, 2, bottleneck=8)
    adopted = student.adapted(aligned.state_dict())
    assert set(adopted) == set(student.state_dict())
    student.load_state_dict(adopted)
    save_file(student.state_dict(), tmp_path / "student.safetensors")
    last = RecurrentStudent(base, 2, bottleneck=8)
    load_weights(last, tmp_path / "student.safetensors", new=())
    assert torch.equal(encoding(last).embedding_BD, encoding(student).embedding_BD)
    smaller = RecurrentStudent(base, 1, bottleneck=4)
    assert not [name for name in smaller.adapted(student.state_dict()) if "word_embeddings" in name]
    plain = RecurrentStudent(base, 2)
    assert set(plain.adapted(assistant.state_dict())) == set(plain.state_dict())


def test_weights_of_another_base_are_refused(make_model: MakeModel) -> None:
    student = RecurrentStudent(make_model("bert"), 3, repeats=1)
    with pytest.raises(BadInput, match=r"layer\.2"):
        student.adapted(RecurrentStudent(make_model("bert"), 2).state_dict())
    with pytest.raises(BadInput, match="missing"):
        student.adapted(TransformerStudent(make_model("distilbert")).state_dict())
    state = TransformerStudent(make_model("bert")).state_dict()
    state["backbone.embeddings.position_embeddings.weight"] = torch.zeros(3, 32)
    with pytest.raises(BadInput, match="other_shape"):
        student.adapted(state)


@each_row(
    ("arguments", "rule"),
    [
        ({"unit": 0}, "1 <= unit"),
        ({"unit": 5}, "1 <= unit"),
        ({"unit": 3}, "layers of the base % unit"),
        ({"unit": 2, "layers": (1,)}, r"len\(layers\) = unit"),
        ({"unit": 2, "repeats": -1}, "repeats >= 0"),
        ({"unit": 2, "bottleneck": 32}, "bottleneck < hidden size"),
        ({"unit": 2, "pooling": "sum"}, "pooling in"),
        ({"unit": 2, "dropout": 1.0}, "dropout < 1"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], rule: str, make_model: MakeModel) -> None:
    with pytest.raises(BadInput, match=rule):
        RecurrentStudent(make_model("bert"), **arguments)


def test_too_many_tokens_are_refused_and_autocast_is_safe(make_model: MakeModel) -> None:
    student = RecurrentStudent(make_model("roberta"), 2, bottleneck=8).eval()
    with pytest.raises(BadInput, match="max_length"):
        student(tokens([5] * 63))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        vectors_BD = student(TOKENS).embedding_BD
    assert vectors_BD.dtype == torch.float32
    assert torch.cosine_similarity(vectors_BD, encoding(student).embedding_BD).min() > 0.99
