"""One stage in this process (or rank): its inputs are built, opened and passed to the training loop."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from stillhouse.core.artifacts import Workspace, write_json
from stillhouse.core.distributed import rank
from stillhouse.core.identity import canonical
from stillhouse.core.notes import STAGE_NOTE
from stillhouse.evaluation.suites import measure_suite
from stillhouse.teachers.loading import tokenizer_of
from stillhouse.training.dev_items import keep_items
from stillhouse.training.facts import write_facts
from stillhouse.training.fit import OBJECTIVE, STUDENT, OnEvaluation, fit
from stillhouse.training.held_out import held_out_tokens, open_held_out
from stillhouse.training.inputs import get
from stillhouse.training.least_squares import build_first_layer, started
from stillhouse.training.published_run import published_run
from stillhouse.training.rank_sync import on_rank0
from stillhouse.training.start_figures import start_figures
from stillhouse.training.table import live_reader, open_table, student_reader
from stillhouse.training.watch import Evaluate
from stillhouse.values.data import Model, TokenTable, teachers_in
from stillhouse.values.stage import Stage

if TYPE_CHECKING:
    from stillhouse.training.where import Where


def prepare(stage: Stage, workspace: Workspace, *, device: str, threads: int, actors: int = 0) -> None:
    """Build the missing inputs of a stage: stores, examples and tokens; see `inputs.get`."""
    fetch_start(stage, workspace)
    get([stage, *token_tables(stage)], workspace, device=device, threads=threads, actors=actors)
    build_first_layer(stage, workspace, device="cpu" if actors else device)


def token_tables(stage: Stage) -> list[TokenTable]:
    """List the tokens that a stage reads: those of its student, and those of a live teacher of its own."""
    student = student_reader(stage, tokenizer_of(stage))
    tables: list[TokenTable] = []
    for reader in (student, live_reader(stage, student)):
        if reader is not None:
            held_out = held_out_tokens(stage, reader)
            tables += (*reader.tables(stage.examples).values(), *([held_out] if held_out else []))
    return tables


def fetch_start(stage: Stage, workspace: Workspace) -> None:
    """Fetch the model that a student starts from, where it is an artifact that another node has made."""
    for teacher in teachers_in(stage.student):
        for model in teacher.models:
            fetch_model(model, workspace)


def fetch_model(model: Model, workspace: Workspace) -> None:
    """Fetch a model that is an artifact of the workspace, unless it is here."""
    if Path(model.path).parent.parent == workspace.root.resolve():
        workspace.obtain(Path(model.path).parent.name, Path(model.path).name)


def fit_here(
    stage: Stage,
    workspace: Workspace,
    where: "Where",
    *,
    device: str,
    on_evaluation: OnEvaluation | None = None,
    stop_requested: Callable[[], bool] | None = None,
    save_requested: Callable[[], bool] | None = None,
) -> None:
    """Train a stage whose inputs are here, in this process or as one rank of a process group."""
    if where.threads:
        torch.set_num_threads(where.threads)
    if rank() == 0:
        write_json(workspace.place(stage) / STAGE_NOTE, canonical(stage))
        write_facts(stage, workspace, where.search)
    start = on_rank0(lambda: start_figures(stage, workspace, where, device))
    student = student_reader(stage, tokenizer_of(stage))
    live = live_reader(stage, student)
    held_out = open_held_out(workspace, stage, student, live) if rank() == 0 else None
    fit(
        stage,
        open_table(workspace, stage, student, live),
        workspace.place(stage),
        device=device,
        evaluate=dev_suite(stage, workspace, where),
        held_out=held_out,
        start=start,
        on_evaluation=on_evaluation,
        first_weights=_weights(workspace, stage.start_from),
        first_objective=_weights(workspace, stage.start_from, OBJECTIVE) if stage.keeps_objective else None,
        first_layer=started(stage, workspace),
        live_weights=_weights(workspace, stage.live.start_from if stage.live else None),
        checkpoint_seconds=where.checkpoint_seconds,
        stop_requested=stop_requested,
        save_requested=save_requested,
        published=published_run(stage, workspace),
        step_limit_s=where.step_limit_s if where.workers == 1 else 0.0,
    )


def _weights(workspace: Workspace, stage: Stage | None, file: str = STUDENT) -> Path | None:
    """Return the file of an earlier stage's trained student, or of its objective."""
    return None if stage is None else workspace.path(stage) / file


def dev_suite(stage: Stage, workspace: Workspace, where: "Where") -> Evaluate | None:
    """Return the stage's dev suite as a function of an encoder; None if it has none."""
    suite = stage.dev
    if suite is None:
        return None

    def evaluate(encoder: Any) -> dict[str, float]:
        figures, items = measure_suite(suite, encoder, workspace, search=where.search)
        if suite.select in items:
            keep_items(workspace.place(stage), figures[suite.select], items[suite.select])
        return figures

    return evaluate
