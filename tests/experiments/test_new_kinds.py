"""A new kind of data, or of student, is one new file: nothing else lists them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from rows import each_row

from stillhouse.cli.main import main
from stillhouse.experiments import kinds, students
from stillhouse.experiments.data_kind import data_kinds
from stillhouse.experiments.experiment import Experiment
from stillhouse.experiments.fields import as_file, as_mapping, changed, experiment_of, fields
from stillhouse.experiments.student_choice import student_kinds
from stillhouse.values.kinds import Kind

POEMS = '''
"""Poems."""

from dataclasses import dataclass

from stillhouse.core.errors import require
from stillhouse.experiments.data_kind import DataKind, Reader


@dataclass(frozen=True)
class Poems(DataKind[str]):
    """Poems to learn from.

    Attributes:
        path: File of the poems.
        lines: Lines per poem.
    """

    key = "poems"
    title = "poems"
    remedy = "Give --set poems.path=FILE."
    read_by = f"{__name__}:PoemReader"
    path: str = ""
    lines: int = 4

    def __post_init__(self) -> None:
        require(self.lines > 0, "poems.lines > 0", lines=self.lines)


class PoemReader(Reader[Poems, str]):
    """The reader of poems, which a kind with light imports may have in its own file."""

    def sketch(self, experiment: object) -> str:
        return "no poem"
'''
TABLE = '''
"""A table."""

from dataclasses import dataclass

from stillhouse.experiments.student_choice import StudentChoice


@dataclass(frozen=True)
class TableChoice(StudentChoice):
    """A table.

    Attributes:
        checkpoint: Where it starts.
        rows: Number of rows.
    """

    key = "table"
    checkpoint: str = ""
    rows: int = 7
'''


def forget() -> None:
    for cached in (data_kinds, student_kinds, fields):
        cached.cache_clear()


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both files, in folders that the two packages also look in."""
    for package, name, text in ((kinds, "poems", POEMS), (students, "table", TABLE)):
        folder = tmp_path / package.__name__.rpartition(".")[2]
        folder.mkdir()
        (folder / f"{name}.py").write_text(text)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    forget()
    yield
    forget()


@pytest.mark.usefixtures("added")
def test_a_kind_of_data_is_found_by_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    experiment = experiment_of({"poems": {"path": "poems.txt"}})
    poems = experiment.get(data_kinds()["poems"])
    assert (poems.path, poems.lines) == ("poems.txt", 4)
    assert changed(experiment, {"poems.lines": 14}).get(type(poems)).lines == 14
    assert experiment_of(as_mapping(experiment)) == experiment
    assert [kind.key for kind in experiment.kinds] == ["sentences", "poems", "collection", "pairs"]
    assert experiment.available()["poems"] is type(poems)
    assert main(["fields", "poems"]) == 0
    assert "Lines per poem." in capsys.readouterr().out
    assert main(["train", "mse", "--local", "--set", "poems.lines=0"]) == 2
    assert "poems.lines > 0" in capsys.readouterr().err
    assert main(["train", "mse", "--local", "--set", "poems.linse=1"]) == 2
    assert "Did you mean poems.lines" in capsys.readouterr().err


@pytest.mark.usefixtures("added")
def test_a_kind_of_student_is_found_by_its_file() -> None:
    student = experiment_of({"student": {"kind": "table", "rows": 9}}).student
    assert student == student_kinds()["table"](rows=9)  # type: ignore[call-arg]
    assert "student.rows" in fields()


def test_they_are_gone_without_their_files() -> None:
    assert "poems" not in data_kinds() and "table" not in student_kinds()
    assert issubclass(data_kinds()["sentences"], Kind) and Experiment().source.key == "sentences"


@each_row("key", sorted(data_kinds()))
def test_an_experiment_of_each_kind_is_written_as_a_file_and_read_again(key: str) -> None:
    """Also of a kind that is refused without a folder: every sweep writes its experiment so."""
    needed = {"task": {"name": "rte", "root": "data"}, "claims": {"path": "data"}}
    experiment = Experiment(data=(data_kinds()[key](**needed.get(key, {})),))
    assert as_file(experiment)[key] == needed.get(key, {})
    assert experiment_of(as_file(experiment)) == experiment
