"""The record of a trained student's stages: dev figures and losses."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.identity import fingerprint
from stillhouse.training.metrics_log import NAME, read_lines


@dataclass(frozen=True)
class StageCurve:
    """The curve of one stage; examples are counted from the start of the first stage.

    Attributes:
        label: The stage's label.
        select: The dev figure that its checkpoints are selected by; empty where nothing is measured.
        before: Dev figures before the stage's first step, where they were measured.
        loss: Examples and loss, as they were logged.
        dev: Examples and dev figures of every evaluation.
    """

    label: str
    select: str
    before: Mapping[str, float]
    loss: tuple[tuple[int, float], ...]
    dev: tuple[tuple[int, Mapping[str, float]], ...]


def learning_curve(folder: Path) -> list[StageCurve]:
    """Read the curves of a finished stage and of those that it continues, the first one first.

    Raises:
        BadInput: A stage is not finished.
    """
    chain = [(folder, read_manifest(folder))]
    while (before := folder_before(*chain[0])) is not None:
        chain.insert(0, (before, read_manifest(before)))
    curves, seen = [], 0
    for each, manifest in chain:
        lines = list(read_lines(each / NAME))
        dev = manifest["plan"]["with"]["dev"]
        curves.append(
            StageCurve(
                label=manifest["label"],
                select=dev["with"]["select"] if dev else "",
                before=manifest.get("start", {}),
                loss=tuple(
                    (seen + line["examples"], line["metrics"]["loss"])
                    for line in lines
                    if "loss" in line["metrics"]
                ),
                dev=tuple(
                    (seen + each["examples"], each["metrics"])
                    for each in manifest["evaluations"]
                    if each["metrics"]
                ),
            )
        )
        seen += manifest["examples"]
    return curves


def folder_before(folder: Path, manifest: Mapping[str, Any]) -> Path | None:
    """The folder of the stage that a finished one continues; None where it began with a new student."""
    before = manifest["plan"]["with"]["start_from"]
    return None if before is None else folder.parent / f"{before['with']['label']}-{fingerprint(before)}"
