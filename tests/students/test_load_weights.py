from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from stillhouse.core.errors import BadInput
from stillhouse.core.types import Encoding, Tokens
from stillhouse.students.transformer import TransformerStudent, load_weights
from stillhouse.values.data import Model

MakeModel = Callable[[str], Model]
TOKENS = Tokens(torch.tensor([[0, 7, 8, 9, 2], [0, 20, 2, 1, 1]]), torch.tensor([[1] * 5, [1, 1, 1, 0, 0]]))


def encoded(student: TransformerStudent) -> torch.Tensor:
    with torch.no_grad():
        encoding: Encoding = student.eval()(TOKENS)
    return encoding.embedding_BD


def test_weights_carry_over_to_the_next_stage(make_model: MakeModel, tmp_path: Path) -> None:
    base, path = make_model("bert"), tmp_path / "student.safetensors"
    first = TransformerStudent(base, layers=(0, 1))
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.add_(0.01)
    save_file(first.state_dict(), path)
    same = TransformerStudent(base, layers=(0, 1))
    load_weights(same, path, new=())
    assert torch.equal(encoded(same), encoded(first))
    narrow = TransformerStudent(base, layers=(0, 1), projection=8, seed=1)
    fresh = TransformerStudent(base, layers=(0, 1), projection=8, seed=1).projection
    load_weights(narrow, path)
    assert narrow.projection is not None and fresh is not None
    assert torch.equal(narrow.projection.weight, fresh.weight)
    assert torch.equal(narrow.eval()(TOKENS).hidden[-1], first.eval()(TOKENS).hidden[-1])
    with pytest.raises(BadInput, match=r"projection\.weight"):
        load_weights(narrow, path, new=())


def test_weights_of_another_student_are_refused(make_model: MakeModel, tmp_path: Path) -> None:
    base, path = make_model("bert"), tmp_path / "student.safetensors"
    student = TransformerStudent(base, layers=(0, 1))
    before = encoded(student)
    for other in (
        TransformerStudent(base, layers=(0,)),
        TransformerStudent(base, layers=(0, 1, 2)),
        TransformerStudent(base, layers=(0, 1), projection=8),
    ):
        save_file(other.state_dict(), path)
        with pytest.raises(BadInput, match="fit the student"):
            load_weights(student, path)
    save_file({n: t[:1].clone() for n, t in student.state_dict().items()}, path)
    with pytest.raises(BadInput, match="other_shape"):
        load_weights(student, path)
    with pytest.raises(BadInput, match="exist"):
        load_weights(student, tmp_path / "nothing.safetensors")
    assert torch.equal(encoded(student), before)
