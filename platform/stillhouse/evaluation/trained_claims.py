"""The claims that a stage was trained on: it is never measured on one of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import MANIFEST, Workspace, read_json, read_manifest
from stillhouse.core.errors import BadInput, require
from stillhouse.core.notes import STAGE_NOTE, STAGES, room_of
from stillhouse.corpora.reading.cleaning import clean, dedup_key
from stillhouse.corpora.tables import open_rows, open_texts
from stillhouse.evaluation.claim_ranking import ClaimRanking
from stillhouse.values.data import Examples, Given, TextTable
from stillhouse.values.stage import DevSuite, TestSuite

TRAINING_ROWS = "claims-train"
"""Label of the rows that a stage is trained on."""
_TABLES = {"claim": "claims", "documents": "documents"}
"""Label of the table of each of their columns."""


@dataclass(frozen=True)
class TrainedClaims:
    """The claims that a model was trained on, as `dedup_key` gives them.

    The split that they are the training part of kept each ``claim`` or each ``page`` together.
    """

    split_by: str
    keys: frozenset[bytes]

    def refuse_overlap(self, model: str, split: str, texts: Sequence[str]) -> None:
        """Refuse to measure a model on claims that it was trained on.

        Raises:
            BadInput: At least one of them was trained on.
        """
        shared = sum(dedup_key(clean(text)) in self.keys for text in texts)
        if shared:
            raise BadInput(
                f"a model must be measured on claims that it was not trained on, but {shared} of the "
                f"{len(texts)} {split} claims are among the {len(self.keys):,} that {model} was trained on "
                f"(split by {self.split_by}). Measure it on the folder and the split that it was trained "
                f"with: --set claims.split_by={self.split_by}."
            )


def trained_claims(folder: Path) -> TrainedClaims | None:
    """Find the claims that a stage, or a teacher or an earlier stage of it, was trained on; None if on none.

    Raises:
        BadInput: The stage was trained on claims that its workspace no longer holds.
    """
    if room_of(folder) != STAGES:
        return None
    workspace = Workspace(folder.resolve().parents[1])
    keys: set[bytes] = set()
    split_by = ""
    for examples in {each.fingerprint: each for each in _examples_in(_plan_of(folder))}.values():
        require(
            workspace.finished(examples),
            f"the workspace of {folder.name} must hold the claims that it was trained on",
            missing=workspace.path(examples).name,
            remedy="Train it again, or measure it with --claims.",
        )
        split_by = read_manifest(workspace.path(examples)).get("split_by", "page")  # older ones: by page
        keys |= {dedup_key(clean(text)) for text in _claims_of(examples, workspace)}
    return TrainedClaims(split_by, frozenset(keys)) if keys else None


def refuse_trained_claims(
    stages: Mapping[str, Path], suite: DevSuite | TestSuite, split: str, workspace: Workspace
) -> None:
    """Refuse to measure stages on claims that they were trained on.

    Raises:
        BadInput: See `TrainedClaims.refuse_overlap`.
    """
    measured = [part.kwargs["examples"] for part in suite.evaluators if part.target is ClaimRanking]
    texts = [text for examples in measured for text in _claims_of(examples, workspace)]
    for name, folder in stages.items():
        trained = trained_claims(folder)
        if trained is not None:
            trained.refuse_overlap(name, split, texts)


def _claims_of(examples: Examples, workspace: Workspace) -> list[str]:
    return open_texts(workspace, examples.columns["claim"])[open_rows(workspace, examples)["claim"]]


def _plan_of(folder: Path) -> Any:
    """The plan of a stage: that of the manifest, which has a checksum, if the stage is finished."""
    manifest = read_manifest(folder) if (folder / MANIFEST).exists() else {}
    return manifest["plan"] if "plan" in manifest else read_json(folder / STAGE_NOTE)


def _examples_in(plan: Any) -> Iterator[Examples]:
    """Find the rows that came with the data among the training examples of a plan's stages."""
    if isinstance(plan, list):
        for part in plan:
            yield from _examples_in(part)
    elif isinstance(plan, Mapping):
        given = plan.get("value") == "Examples" and plan["with"]["origin"]["value"]
        if given == "Given" and set(plan["with"]["columns"]) == set(_TABLES):
            tables = plan["with"]["columns"]
            columns = {
                name: TextTable(tables[name]["with"]["sha256"], label) for name, label in _TABLES.items()
            }
            sha256, values = plan["with"]["origin"]["with"]["sha256"], tuple(plan["with"]["values"])
            yield Examples(columns, Given(sha256), label=TRAINING_ROWS, values=values)
            return
        for name, part in plan.items():
            if name != "dev":  # what a stage is measured on
                yield from _examples_in(part)
