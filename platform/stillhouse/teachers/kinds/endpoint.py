"""An endpoint: stores are built shard by shard, with requests side by side in threads of the driver.

The requests of a shard are a function of the shard alone. Its file is written when all of them are answered,
so a run that ends early is continued with the missing shards, and no text is stored twice.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, cast

import numpy as np

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say
from stillhouse.core.roles import Prompts
from stillhouse.corpora.tables import Texts
from stillhouse.teachers.choice import TeacherChoice
from stillhouse.teachers.client import Client, found_out, warn_of_open_key
from stillhouse.teachers.forward import Vectors
from stillhouse.teachers.kinds import Embed, TeacherKind
from stillhouse.teachers.shards import Shard, Work, write_shard
from stillhouse.values.data import Endpoint, Store

_AHEAD = 2
"""Shards whose requests are under way at once, so that threads do not wait for the last answer of a shard."""


class _Asked(NamedTuple):
    number: int
    part: int
    start: float
    answers: "list[Future[tuple[Vectors, int]]]"


class Endpoints(TeacherKind):
    """See `TeacherKind`."""

    def find(self, choice: TeacherChoice) -> Endpoint:
        """Ask the endpoint for a vector, where its dimension or its length is not stated."""
        asked = Endpoint(
            choice.endpoint.rstrip("/"),
            choice.model,
            kept=choice.dimension,
            prompts=Prompts(**choice.prompts.given()),
            bodies=choice.body.by_role(),
            name=choice.own_name or choice.model,
            requests=choice.requests,
        )
        return found_out(asked, choice.normalize)

    def remarks(self, choice: TeacherChoice, teacher: Endpoint) -> list[str]:
        """Say what it answered, and what requests have beside the texts."""
        length = "of length 1" if teacher.normalize else "not normalised"
        told = f"{teacher.name} at {teacher.url}: {teacher.dimension} dimensions, {length}"
        asked = f"; requests have: {teacher.bodies}" if teacher.bodies else ""
        return [told + (f"; prompts: {teacher.prompts}" if teacher.prompts else "") + asked]

    def load(self, store: Store, workspace: Workspace, device: str) -> Callable[[Store], Embed]:
        """Make a client of the endpoint."""
        client = Client(cast(Endpoint, store.teacher))
        return lambda each: lambda texts: client.embed([each.prompt + text for text in texts])[0]

    def shards(
        self, works: list[Work], missing: list[tuple[int, int]], actors: int, told: Callable[[int, int], None]
    ) -> Iterator[tuple[int, Shard]]:
        """Ask for the shards of stores.

        Raises:
            BadInput: The endpoint refuses, or did not answer well within the allowed attempts. What was asked
                until then is printed in any case.
        """
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
            for client in clients.values():
                if client.count.texts or client.count.repeated:
                    say(f"  {client.count.sentence(client.endpoint)}")


def _endpoint(work: Work) -> Endpoint:
    return cast(Endpoint, work.store.teacher)


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
