"""Timing of an actor pool, derived from the files of the store that it wrote."""

from stillhouse.core.artifacts import Workspace, read_manifest
from stillhouse.values.data import Store


def running_rate(
    workspace: Workspace, store: Store, actors: int, share: tuple[float, float] = (0.0, 1.0)
) -> float:
    """Rows a second once the pool ran: of the shards after the first ``actors``, by the times of their files.

    The shards of a store have equally many rows, but for the last.

    Args:
        workspace: Where the store is.
        store: The store.
        actors: Number of actors in the pool.
        share: Start and end of the measured part of the shards, in the order of their files.
    """
    folder = workspace.path(store)
    shards = read_manifest(folder)["shards"]
    written = sorted(((folder / shard["name"]).stat().st_mtime, shard["rows"]) for shard in shards)
    written = written[round(share[0] * len(written)) : round(share[1] * len(written))]
    assert len(written) > actors, f"{len(written)} shards tell nothing of the rate of {actors} actors"
    rows = sum(count for _, count in written[actors:])
    return float(rows / (written[-1][0] - written[actors - 1][0]))
