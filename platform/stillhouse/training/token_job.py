"""The tokens that a plan reads, made by the CPUs of all nodes before its first stage begins.

A trial that finds no tokens makes them itself, in one process, while the others wait. For large tables that
is work for the cluster: Ray Data reads and tokenises the shards of a text table wherever a CPU is free, and
this process, which holds no CPU, writes what comes back in the order of the rows.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse.cluster.ray_data import as_list, from_list, streaming
from stillhouse.cluster.running import ray_runs
from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.core.console import Progress, doing
from stillhouse.core.errors import mistake_in
from stillhouse.core.tokenizing import Ids, Offsets
from stillhouse.corpora.tables import cached_texts
from stillhouse.corpora.tokens import build_tokens, tokens_of_shard
from stillhouse.teachers.weights import on_this_machine
from stillhouse.training.local import fetch_model, token_tables
from stillhouse.values.data import TextTable, TokenTable
from stillhouse.values.stage import Stage

if TYPE_CHECKING:
    import pyarrow as pa

WORTH_A_JOB = 32
"""Shards of a text table, about 65,000 rows, from which on all nodes make its tokens; fewer take seconds."""


def build_tokens_on_cluster(stage: Stage, workspace: Workspace, *, shards: int = WORTH_A_JOB) -> None:
    """Tokenise the large text tables of a plan's unfinished stages, where Ray is running.

    Args:
        stage: The last stage of the plan.
        workspace: Holds the texts, and gets the tokens. Every worker must see it under the same path, unless
            it has a remote.
        shards: Shards that a table must have; smaller ones are left to the stage that reads them.

    Raises:
        BadInput: The tokenizer cannot be used, or the disk is full.
    """
    for part in stage.chain() if ray_runs() else ():
        texts = part.examples.columns.values()
        if workspace.finished(part) or max(_shards(workspace, each) for each in texts) < shards:
            continue
        for table in token_tables(part):
            if not workspace.finished(table) and _shards(workspace, table.texts) >= shards:
                _build(workspace, table)


def _build(workspace: Workspace, table: TokenTable) -> None:
    progress = Progress(f"tokenising {table.texts.label}", "texts")
    with doing(f"tokenising {table.texts.label}"), streaming(in_order=True):
        try:
            build_tokens(workspace, table, progress, lambda: _through_ray(workspace, table))
        except Exception as error:
            raise mistake_in(error) or error from None


def _through_ray(workspace: Workspace, table: TokenTable) -> Iterator[tuple[Ids, Offsets]]:
    import ray.data

    count = _shards(workspace, table.texts)
    items = [{"index": index} for index in range(count)]
    tokens = ray.data.from_items(items, override_num_blocks=count).map_batches(
        _tokenise_task, fn_args=(workspace, table), batch_size=1, batch_format="pyarrow", num_cpus=1
    )
    for batch in tokens.iter_batches(batch_size=1, batch_format="pyarrow"):
        yield from_list(batch, "ids"), from_list(batch, "offsets")


def _tokenise_task(batch: "pa.Table", workspace: Workspace, table: TokenTable) -> "pa.Table":
    import pyarrow as pa

    (index,) = batch["index"].to_pylist()
    fetch_model(table.tokenizer, workspace)
    folder = Path(on_this_machine(table.tokenizer).path)
    texts = cached_texts(workspace.path(table.texts))
    ids, offsets = tokens_of_shard(texts, index, table, folder)
    return pa.table({"ids": as_list(ids), "offsets": as_list(offsets)})


def _shards(workspace: Workspace, texts: TextTable) -> int:
    return len(read_manifest(workspace.path(texts))["shards"])
