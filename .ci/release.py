"""Run the suites that are too long for `.ci/run`, and write what came of each into docs/release.md.

    make release                         all of them, one after another: several hours
    make release SUITES=cluster-test     some of them; the other lines of the page stay

The exit status is 1 if anything failed.
"""

import datetime
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "release.md"
NOT_RUN = "not yet run on this version"
_COUNT = re.compile(r"(\d[\d,]*) (passed|failed|errors?|skipped)\b")


def main(suites: Sequence[str]) -> int:
    """Run suites, and write the page after each."""
    failed = []
    for suite in suites:
        started = time.monotonic()
        last = ""
        for line in _output(suite):
            print(line, end="", flush=True)
            last = line if _COUNT.search(line) else last
        counts = counted(last)
        if counts["passed"] == 0 or counts["failed"]:
            failed.append(suite)
        PAGE.write_text(with_result(PAGE.read_text(), suite, counts, (time.monotonic() - started) / 60))
    print(f"failed: {', '.join(failed)}" if failed else f"passed: {', '.join(suites)}")
    return int(bool(failed))


def counted(line: str) -> dict[str, int]:
    """Read passed, failed and skipped from a suite's last line, which has the form of pytest's."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for number, word in _COUNT.findall(line):
        counts["failed" if word.startswith("error") else word] += int(number.replace(",", ""))
    return counts


def with_result(page: str, suite: str, counts: dict[str, int], minutes: float) -> str:
    """Return the page with another line for a suite."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    cells = [f"`{suite}`", version(), f"{datetime.date.today()}", commit.stdout.strip() or "unknown"]
    line = " | ".join([*cells, *(f"{counts[each]:,}" for each in counts), f"{minutes:.0f}"])
    return re.sub(rf"^\| `{suite}` \|.*$", f"| {line} |", page, count=1, flags=re.MULTILINE)


def version() -> str:
    """Return the version of the package in this repository."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def _output(suite: str) -> Iterator[str]:
    with subprocess.Popen(
        ["make", suite], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        yield from process.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
