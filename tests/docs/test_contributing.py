"""The example method in CONTRIBUTING can be added by writing its files and nothing else."""

import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NOUNS = "cat dog sat mat house river water sun moon red green blue".split()


def files_of(page: Path) -> dict[str, str]:
    """The blocks that begin with a comment naming a file."""
    blocks = re.findall(r"^```\w+\n# (\S+/\S+)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return dict(blocks)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the method's files added and no existing file changed."""
    folder = tmp_path_factory.mktemp("repository")
    for name in ("platform", "search_spaces"):
        shutil.copytree(ROOT / name, folder / name)
    added = files_of(ROOT / "CONTRIBUTING.md")
    assert set(added) == {
        "platform/stillhouse/losses/huber.py",
        "platform/stillhouse/objectives/robust.py",
        "platform/stillhouse/methods/huber.py",
        "search_spaces/huber.yaml",
    }
    for name, text in added.items():
        assert not (folder / name).exists()
        (folder / name).write_text(text)
    return folder


def in_a_fork(copy: Path, commands: list[list[str]]) -> None:
    """Run commands of the copy, in a process that has only what the package needs imported already."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "stillhouse"]:
        del sys.modules[name]
    sys.path.insert(0, str(copy / "platform"))
    os.chdir(copy)
    from stillhouse.cli import main

    assert Path(main.__file__).is_relative_to(copy)
    sys.exit(max(main.main(command) for command in commands))


def test_the_method_is_found_plans_and_trains(
    copy: Path, tiny_model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "words.txt"
    pairs = [f"the {first} and the {second}" for first in NOUNS for second in NOUNS]
    corpus.write_text("\n".join(pairs))
    train = [
        *("train", "huber", "--local", "--root", str(tmp_path / "runs")),
        *("--teacher", str(tiny_model), "--corpus", str(corpus), "--sentences", "0"),
        *("--set", "sentences.held_out=4", "--layers", "[0,1]", "--max-length", "8"),
        *("--distil-budget", "8", "--evaluations", "1"),
        *("--compute", "float32", "--set", "batch_size=8", "--set", "delta=0.5"),
    ]
    arguments = (copy, [["presets", "huber"], train])
    forked = multiprocessing.get_context("fork").Process(target=in_a_fork, args=arguments, daemon=True)
    forked.start()
    forked.join(300)
    printed = "".join(capfd.readouterr())
    assert forked.exitcode == 0, printed
    assert "delta" in printed.partition("huber: 8 examples")[0] and "huber: 8 examples" in printed
    assert len(list((tmp_path / "runs" / "stages").glob("huber-*/manifest.json"))) == 1


@pytest.mark.long
def test_the_contract_of_all_methods_holds_for_it(copy: Path) -> None:
    shutil.copytree(ROOT / "tests", copy / "tests")
    shutil.copy(ROOT / "pyproject.toml", copy)
    files = [
        f"tests/methods/test_{name}.py" for name in ("contract", "lengths", "optimizers", "search_spaces")
    ]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        "PYTHONPATH": str(copy / "platform"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *files, "-k", "not job", "-p", "no:xdist"],
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
