"""What a remote holds, as a node that fetches it would see it."""

import json
from collections.abc import Iterator
from typing import Any

from stillhouse.core.remotes import Remote


def stages_in(remote: str) -> dict[str, str]:
    """The hash of the weights of each stage."""
    return {name: found["weights_sha256"] for name, found in manifests(remote, "stages")}


def rows_in(remote: str) -> dict[str, tuple[int, int]]:
    """The number of texts that each store was made of, and how many of them are accounted for."""
    return {
        name: (found["input_rows"], found["rows"] + found["duplicates"] + found["quarantined"])
        for name, found in manifests(remote, "stores")
    }


def manifests(url: str, kind: str) -> Iterator[tuple[str, Any]]:
    """Name and manifest of each finished artifact of a kind."""
    remote = Remote(url)
    for key in sorted({path.partition("/")[0] for path in remote._sizes(kind)}):
        files = remote.listed(f"{kind}/{key}")
        if files is not None:
            own = remote.read(f"{kind}/{key}/{files['manifest.json'].place('manifest.json')}")
            assert own is not None
            yield key, json.loads(own)
