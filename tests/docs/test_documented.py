"""The blocks of README, start page and tutorial, run as they stand, in their order, in one folder.

Shell blocks have no language or `sh`; output is marked `text`. Nothing is left out but the lines below "On a
cluster", which need one.
"""

import json
import random
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from patience import STUCK_S
from tiny_model import WORDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/index.md", "docs/tutorial.md")
NEEDS_A_CLUSTER = ("README.md", "On a cluster")
"""The one section whose lines are not run: page and heading."""
SMALL = (
    "--teacher TINY --corpus texts.jsonl --column body --sentences 0 --labelled labelled.jsonl --pairs 0 "
    "--trials 2 --distil-budget 256 --finetune-budget 64 --refit 512 --set budget.refit.finetune=64"
)
"""The job with a corpus, a teacher and budgets of seconds."""
REPLACED = (
    # What runs for ever, or runs this test again, is looked at by make alone.
    (r"^make (test|ui)$", r"make --dry-run \1"),
    # The corpus and the teacher.
    (r"^make sweep$", f"jobs/sweep_ibkd.py {SMALL}"),
    (r"^make sweep-full$", f"jobs/sweep_ibkd.py --scale full --name ibkd-full {SMALL}"),
    (r"BAAI/bge-base-en-v1\.5|all-MiniLM-L6-v2", "TINY"),
    (
        r"stillhouse (embed|(?:train|sweep) ibkd(?: --name library)?)(.* --split-sentences)",
        r"stillhouse \1 --teacher TINY\2",
    ),
    (r"distil\(\"TINY\", texts\)", 'distil("TINY", texts, examples=256)'),
    (r"'\[0,2,4\]'", "'[0,2]'"),
    # Smaller budgets.
    (r"(--trials) (?:40|4)\b", r"\1 2"),
    (r"(--distil-budget) \d+", r"\1 256"),
    (r"(--finetune-budget) \d+", r"\1 64"),
    # Names that are fingerprints: the stage that the last training printed.
    (r"runs/stages/finetune-[0-9a-f]{16}", "STAGE"),
)
"""What stands for which words of the pages, in this order."""


@dataclass(frozen=True)
class Block:
    """A block of a page.

    Attributes:
        place: Page, heading and number within the page.
        python: Python rather than shell.
        text: What stands there.
    """

    place: str
    python: bool
    text: str


def blocks(page: str, text: str) -> Iterator[Block]:
    """Yield the blocks that a reader runs; a block of a language that is not known is an error."""
    heading, fence = "", ""
    found: list[str] = []
    for line in text.splitlines():
        if fence and line.strip() == "```":
            if fence != "text" and (page, heading) != NEEDS_A_CLUSTER:
                assert fence in ("sh", "python"), f"{page}: a block is shell, python or text, not {fence}"
                yield Block(f"{page}, {heading}: {found[0]}", fence == "python", "\n".join(found) + "\n")
            fence = ""
        elif fence:
            found.append(line)
        elif line.startswith("```"):
            fence, found = line[3:].strip() or "sh", []
        elif line.startswith("#"):
            heading = line.lstrip("# ")


def lines_of(shell: str) -> list[str]:
    """Return the commands of a shell block, without comments."""
    joined = re.sub(r"\\\n\s*", "", shell).splitlines()
    return [line for each in joined if (line := re.sub(r"\s+#.*", "", each).strip())]


def replaced(text: str, words: dict[str, str]) -> str:
    """Return a line or a Python block with small values."""
    for pattern, by in REPLACED:
        text = re.sub(pattern, by, text, flags=re.MULTILINE)
    for word, value in words.items():
        text = re.sub(rf"\b{word}\b", value, text)
    return text


def command(line: str) -> list[str]:
    """Return the words of the process that runs a line of a shell block.

    Raises:
        AssertionError: The line begins with a program that this test cannot run.
    """
    program, *arguments = shlex.split(line)
    match Path(program).name:
        case "stillhouse":
            return [sys.executable, "-m", "stillhouse.cli.main", *arguments]
        case "make":
            return ["make", "-C", str(ROOT), *arguments]
        case "sweep_ibkd.py":
            return [sys.executable, str(ROOT / "jobs" / "sweep_ibkd.py"), *arguments]
    raise AssertionError(f"this test cannot run `{line}`")


def write_texts(folder: Path) -> None:
    """Write a corpus, labelled pairs and published sets as the README's reader has them."""
    chance = random.Random(0)

    def text(words: int) -> str:
        return " ".join(chance.choices(WORDS, k=words))

    (folder / "texts").mkdir()
    for name in ("texts.jsonl", "texts/some.jsonl"):
        (folder / name).write_text("".join(json.dumps({"body": text(12)}) + "\n" for _ in range(800)))
    (folder / "texts.txt").write_text("".join(f"{text(12)}\n" for _ in range(800)))
    pairs = [{"query": text(5), "passage": text(14)} for _ in range(700)]
    (folder / "labelled.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    sts = folder / "published" / "sts" / "senteval" / "STSBenchmark"
    sts.mkdir(parents=True)
    rows = [f"g\tf\ty\t{at}\t{at % 6}.0\t{text(6)}\t{text(6)}" for at in range(24)]
    (sts / "sts-dev.csv").write_text("\n".join(rows))
    found = folder / "published" / "retrieval" / "small"
    (found / "qrels").mkdir(parents=True)
    passages = [json.dumps({"_id": f"p{at}", "title": "", "text": text(14)}) for at in range(40)]
    queries = [json.dumps({"_id": f"q{at}", "text": text(5)}) for at in range(20)]
    judged = ["query-id\tcorpus-id\tscore", *(f"q{at}\tp{at}\t1" for at in range(20))]
    for name, content in (("corpus.jsonl", passages), ("queries.jsonl", queries), ("qrels/dev.tsv", judged)):
        (found / name).write_text("\n".join(content))


@pytest.mark.ray
@pytest.mark.long
def test_what_is_documented_runs(
    tmp_path: Path, trained_model: Path, ray_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every block of the three pages ends with exit code 0, one after another over one workspace."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_TMPDIR", ray_folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "platform"))
    monkeypatch.delenv("STILLHOUSE_ROOT", raising=False)
    write_texts(tmp_path)
    words = {
        "TINY": str(trained_model),
        "DATA": "published",
        "STAGE": "no training yet",
    }
    ran = 0
    for page in PAGES:
        for block in blocks(page, (ROOT / page).read_text()):
            texts = [block.text] if block.python else lines_of(block.text)
            for text in texts:
                small = replaced(text, words)
                process = [sys.executable, "-c", small] if block.python else command(small)
                began = time.monotonic()
                done = subprocess.run(process, capture_output=True, text=True, timeout=STUCK_S, check=False)
                output = done.stdout + done.stderr
                print(f"{done.returncode} {time.monotonic() - began:6.1f} s  {small.strip().splitlines()[0]}")
                assert done.returncode == 0, f"{block.place}\n{small}\n{output[-4000:]}"
                if stage := re.search(r"^trained: (\S+)", output, re.MULTILINE):
                    words["STAGE"] = stage[1]
                ran += 1
    assert ran > 15


def test_blocks_are_found_and_nothing_is_passed_over() -> None:
    page = "# A\n```\nmake sweep  # now\n```\n```text\nprinted\n```\n"
    page += "## On a cluster\n```\nray start\n```\n```python\n1\n```\n"
    assert [(block.python, block.text) for block in blocks("p", page)] == [
        (False, "make sweep  # now\n"),
        (False, "ray start\n"),
        (True, "1\n"),
    ]
    assert [block.text for block in blocks("README.md", page)] == ["make sweep  # now\n"]
    with pytest.raises(AssertionError, match="not yaml"):
        list(blocks("p", "```yaml\na: 1\n```\n"))
    with pytest.raises(AssertionError, match="cannot run `docker run`"):
        command("docker run")
    assert lines_of("a b \\\n   c  # why\n\nd\n") == ["a b c", "d"]
