"""Values of an experiment take what is meant, and refuse any other type by the field's name."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from rows import each_row

import stillhouse
from stillhouse import BadInput, Experiment, Pairs, Sentences, TeacherChoice
from stillhouse.experiments.source import Source
from stillhouse.teachers.choice import PromptChoice

NEEDED: dict[str, dict[str, Any]] = {
    "Claims": {"path": "fever"},
    "LabelledTask": {"name": "sst2", "root": "sst2"},
    "RecurrentChoice": {"unit": 3},
    "Source": {"corpus": "a.txt"},
}
"""Fields without which a value cannot be made."""
VALUES = [
    *(
        getattr(stillhouse, name)
        for name in stillhouse.__all__
        if name not in ("BadInput", "Exported", "Finding", "Trained")
    ),
    Source,
    PromptChoice,
]
CASES = [
    (value, field.name)
    for value in VALUES
    if dataclasses.is_dataclass(value)
    for field in dataclasses.fields(value)
]


def test_a_string_is_a_teacher_and_one_kind_is_a_tuple_of_one() -> None:
    sentences = Sentences("texts.txt")
    short = Experiment(teacher="all-MiniLM-L6-v2", data=sentences)
    assert short == Experiment(teacher=TeacherChoice("all-MiniLM-L6-v2"), data=(sentences,))
    both = [sentences, Pairs("pairs.jsonl")]
    assert Experiment(data=both) == Experiment(data=tuple(both))  # type: ignore[arg-type]
    assert Sentences(Path("texts.txt")).corpus == "texts.txt"  # type: ignore[arg-type]


def test_texts_where_a_path_belongs_are_told_where_they_go() -> None:
    with pytest.raises(BadInput, match=r"sentences\.corpus must be of type str.*texts=\[…\]"):
        Sentences(corpus=["Iron rusts.", "Water is wet."])  # type: ignore[arg-type]


@each_row(("value", "name"), CASES)
def test_a_field_takes_a_value_or_refuses_it_by_its_name(value: Any, name: str) -> None:
    for given in ("a text", 3, 2.5, [1, "two"], None, object()):
        try:
            value(**{**NEEDED.get(value.__name__, {}), name: given})
        except BadInput as refusal:
            assert name in str(refusal) or name.replace("_", "-") in str(refusal), refusal
