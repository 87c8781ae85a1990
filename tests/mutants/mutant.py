"""A deliberate mistake: a piece of a file, what it becomes, and the tests that must notice."""

import ast
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Attributes:
        file: The file, from the root of the repository.
        old: A piece of it that occurs once.
        new: What is written in its place.
        reason: What is wrong then.
        tests: Files or single tests that must notice, from the root of the repository.
    """

    file: str
    old: str
    new: str
    reason: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """File and reason, which `--only` looks in."""
        return f"{self.file.removeprefix('platform/stillhouse/')}: {self.reason}"

    def applied(self, root: Path) -> str:
        """The file with the mistake in it.

        Raises:
            ValueError: The piece does not occur exactly once, nothing changes, or the result cannot be read.
        """
        text = (root / self.file).read_text()
        found = text.count(self.old)
        if found != 1 or self.old == self.new:
            raise ValueError(
                f"{self.name}: the old text must occur once and change, but occurs {found} times"
            )
        changed = text.replace(self.old, self.new)
        try:
            ast.parse(changed) if self.file.endswith(".py") else yaml.safe_load(changed)
        except (SyntaxError, yaml.YAMLError) as error:
            raise ValueError(f"{self.name}: the file must stay readable, but: {error}") from None
        return changed


def mistakes(file: str, tests: str, *changes: tuple[str, str, str]) -> list[Mutant]:
    """Make the mutants of a file that the same tests must notice.

    Args:
        file: From ``platform/stillhouse``, or a file of ``search_spaces``.
        tests: Files or single tests, from ``tests``, with spaces between them.
        changes: Old text, new text, and what is wrong then.
    """
    path = file if file.startswith("search_spaces/") else f"platform/stillhouse/{file}"
    chosen = tuple(f"tests/{test}" for test in tests.split())
    return [Mutant(path, old, new, reason, chosen) for old, new, reason in changes]


def copied(repository: Path, copy: Path) -> Path:
    """Copy what git knows of a repository or would add to it."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=repository, check=True, capture_output=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        if (repository / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repository / name, copy / name)
    return copy
