"""What the files of a store tell of the pool that made it."""

from stillhouse.artifacts import Workspace, read_manifest
from stillhouse.plan import Store


def running_rate(workspace: Workspace, store: Store, actors: int) -> float:
    """Rows a second once the pool ran: of the shards after the first ``actors``, by the times of their files.

    The shards of a store have equally many rows, but for the last.
    """
    folder = workspace.path(store)
    shards = read_manifest(folder)["shards"]
    written = sorted(((folder / shard["name"]).stat().st_mtime, shard["rows"]) for shard in shards)
    assert len(written) > actors, f"{len(written)} shards tell nothing of the rate of {actors} actors"
    rows = sum(count for _, count in written[actors:])
    return float(rows / (written[-1][0] - written[actors - 1][0]))
