"""Building stores from an endpoint: shard by shard, with requests side by side in threads of the driver.

The requests of a shard are a function of the shard alone. Its file is written when all of them are answered,
so a run that ends early is continued with the missing shards, and no text is stored twice.
"""

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from stillhouse.corpora.tables import Texts
from stillhouse.teachers.endpoint import Client, Vectors, tell, warn_of_open_key
from stillhouse.teachers.shards import Shard, Work, write_shard
from stillhouse.values.data import Endpoint

_AHEAD = 2
"""Shards whose requests are under way at once, so that threads do not wait for the last answer of a shard."""


class _Asked(NamedTuple):
    number: int
    part: int
    start: float
    answers: "list[Future[tuple[Vectors, int]]]"


def request_shards(works: list[Work], missing: list[tuple[int, int]]) -> Iterator[tuple[int, Shard]]:
    """Build the missing shards of stores by an endpoint.

    Args:
        works: The stores, by number; those of other teachers are not looked at.
        missing: Number of a store and index of a shard.

    Raises:
        BadInput: The endpoint refuses, or did not answer well within the allowed attempts. What was asked
            until then is printed in any case.
    """
    if not missing:
        return
    clients: dict[str, Client] = {}
    for number, _ in missing:
        endpoint = _endpoint(works[number])
        clients.setdefault(endpoint.fingerprint, Client(endpoint))
    for client in clients.values():
        warn_of_open_key(client.endpoint)
    at_once = max(client.endpoint.requests.at_once for client in clients.values())
    left, asked = deque(missing), deque[_Asked]()
    threads = ThreadPoolExecutor(at_once, thread_name_prefix="endpoint")
    try:
        while left or asked:
            while left and len(asked) < _AHEAD:
                number, part = left.popleft()
                client = clients[_endpoint(works[number]).fingerprint]
                asked.append(_ask(works[number], number, part, client, threads))
            shard = asked.popleft()
            yield shard.number, _written(works[shard.number], shard)
    finally:
        for client in clients.values():
            client.stop()
        threads.shutdown(wait=True, cancel_futures=True)
        tell(list(clients.values()))


def _endpoint(work: Work) -> Endpoint:
    assert isinstance(work.store.teacher, Endpoint)
    return work.store.teacher


def _ask(work: Work, number: int, part: int, client: Client, threads: ThreadPoolExecutor) -> _Asked:
    """Start the requests of a shard."""
    start, size = time.perf_counter(), client.endpoint.requests.batch
    texts = [work.store.prompt + text for text in Texts(work.texts_folder).shard(part)]
    batches = [texts[first : first + size] for first in range(0, len(texts), size)]
    return _Asked(number, part, start, [threads.submit(client.embed, batch) for batch in batches])


def _written(work: Work, asked: _Asked) -> Shard:
    """Wait for the answers of a shard, and write its file."""
    answers = [answer.result() for answer in asked.answers]
    vectors_NE = np.concatenate([vectors for vectors, _ in answers])
    tokens = sum(tokens for _, tokens in answers)
    return write_shard(work, asked.part, vectors_NE, {}, tokens=tokens, start=asked.start)
