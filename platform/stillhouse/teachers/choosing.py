"""Choosing the runtime of a store: the one that exists, the one that was asked for, or the fastest.

The fastest is chosen by seconds of measuring on the store's own texts, in one process, before any actor
starts: all actors then run the same. What counts is the time of the whole pass,

    seconds = start + tokens / (rate · actors),

where ``start`` is what loading and converting (or compiling) took, so a small corpus stays in PyTorch. A
runtime is tried only where the pass is so long that trying it can pay.
"""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from stillhouse.core.artifacts import Workspace, read_json
from stillhouse.core.console import say
from stillhouse.core.machine import available_memory
from stillhouse.core.tokenizing import transformer_part
from stillhouse.corpora.tables import open_texts
from stillhouse.teachers.agreement import lowest_cosine, require_agreement, tokenised_sample
from stillhouse.teachers.forward import Vectors
from stillhouse.teachers.runtimes import (
    require_convertible,
    require_runtime,
    start,
    unconvertible,
    why_not,
)
from stillhouse.teachers.weights import on_this_machine
from stillhouse.values.data import (
    AUTO,
    COMPILE,
    ONNX,
    OPENVINO,
    RUNTIMES,
    TORCH,
    Model,
    Store,
    StoreEnsemble,
    TableStore,
    stores_in,
)

SAMPLE = 256
"""Texts that are measured on."""
_START = {OPENVINO: 20.0, ONNX: 20.0, COMPILE: 90.0}
"""Seconds that trying a runtime is expected to take at most."""
_WORTH = 5.0
"""How many times as long as trying it a pass by PyTorch must take for a runtime to be tried."""
_LEAST = {"cpu": 1e13, "cuda": 6e15}
"""Operations per core or GPU below which nothing is measured: about a minute and a half of PyTorch."""
_TURNS = 3
_COPIES = 6
"""How often the teacher's weights are in memory, at most, while runtimes are measured."""


@dataclass(frozen=True)
class Measured:
    """What a runtime did on the sample.

    Attributes:
        runtime: Its name.
        start: Seconds until it was ready: loading, converting or compiling, and the first pass.
        rate: Tokens per second of one process.
        cosine: Lowest cosine of its vectors to those of PyTorch in float32.
    """

    runtime: str
    start: float
    rate: float
    cosine: float

    def seconds(self, tokens: float, actors: int) -> float:
        """Estimate the seconds of a pass over so many tokens."""
        return self.start + tokens / (self.rate * actors)

    def __str__(self) -> str:
        """``openvino 13,500 (start 12 s, lowest cosine 0.99998)``."""
        facts = f"start {self.start:.0f} s, lowest cosine {self.cosine:.5f}"
        return f"{self.runtime} {self.rate:,.0f} ({facts})"


class Chooser:
    """Chooses the runtimes of an experiment's stores.

    Args:
        wanted: ``auto`` or the name of a runtime, for each teacher.
        workspace: Holds texts and stores.
        device: Device that the teacher runs on.
        actors: Number of processes that will hold the teacher; asked for only if something is measured.
        threads: Threads per process.
        measures: Whether there is time to measure; otherwise ``auto`` takes PyTorch for what does not exist.
    """

    def __init__(
        self,
        wanted: Sequence[str],
        workspace: Workspace,
        device: str,
        *,
        actors: Callable[[], int] = lambda: 1,
        threads: int = 1,
        measures: bool = True,
    ) -> None:
        self._wanted, self._workspace, self._device = wanted, workspace, device
        self._actors, self._threads, self._measures = actors, threads, measures
        self._fastest: dict[str, str] = {}
        """By the fingerprint of a teacher: the runtime that its further stores take."""
        self._known: dict[str, Store] = {}
        self._said: set[tuple[str, str]] = set()

    def choose(self, store: TableStore, *, made: bool = True) -> TableStore:
        """Give a store the runtime that computes it; the same store gets the same answer.

        Args:
            store: Of PyTorch, as it is planned; of several teachers, each store gets a runtime of its own.
            made: Whether the store will be built if it does not exist; otherwise nothing is measured.

        Raises:
            BadInput: The runtime that is asked for cannot run here, or not this teacher.
        """
        single = stores_in(store)
        chosen = tuple(
            self._chosen(each, wanted, made) for each, wanted in zip(single, self._wanted, strict=True)
        )
        return replace(store, members=chosen) if isinstance(store, StoreEnsemble) else chosen[0]

    def _chosen(self, store: Store, wanted: str, made: bool) -> Store:
        if not isinstance(store.teacher, Model):
            return store
        key = store.fingerprint
        if key not in self._known:
            runtime = self._found(store, made) if wanted == AUTO else self._asked_for(store, wanted)
            self._known[key] = replace(store, runtime=runtime)
        return self._known[key]

    def _asked_for(self, store: Store, wanted: str) -> str:
        require_runtime(wanted, self._device, store.compute)
        require_convertible(replace(store, runtime=wanted))
        return wanted

    def _found(self, store: Store, made: bool) -> str:
        teacher = _model(store).fingerprint
        known = self._fastest.get(teacher, "")
        if reason := unconvertible(store):
            if known not in ("", TORCH):
                say(f"  {store.label} is computed by torch: {reason}")
            return TORCH
        if begun := self._begun(store, known):
            return begun
        if known or not (made and self._measures):
            return known or TORCH
        if not self._is_large(store):
            return TORCH
        self._fastest[teacher] = fastest(
            store, self._workspace, self._device, actors=self._actors(), threads=self._threads
        )
        return self._fastest[teacher]

    def _begun(self, store: Store, known: str) -> str:
        """Find the runtime of a store that exists, finished or half made; empty if there is none.

        The further stores of the teacher take the same runtime.
        """
        stores = {name: replace(store, runtime=name) for name in (known or TORCH, *RUNTIMES)}
        for runtime, each in stores.items():
            if self._workspace.finished(each):
                if runtime != TORCH:
                    self._say_once(f"taking the vectors that exist, computed by {runtime}", store)
                return self._followed(runtime, store)
        folders = {name: self._workspace.path(each) for name, each in stores.items()}
        parts = {name: len(list(folder.glob("part-*.arrow"))) for name, folder in folders.items()}
        runtime = max(parts, key=parts.__getitem__)
        if not parts[runtime]:
            return ""
        begun = f"  {store.label}: {parts[runtime]} shards are there, computed by {runtime}"
        if reason := why_not(runtime, self._device, store.compute):
            say(f"{begun}, which cannot go on: {reason}")
            return ""
        if runtime != TORCH:
            say(f"{begun}, which goes on")
        return self._followed(runtime, store)

    def _say_once(self, words: str, store: Store) -> None:
        """Say something of the first store of a teacher that it is true of; a mix of sources has many."""
        said = (_model(store).fingerprint, words)
        if said not in self._said:
            self._said.add(said)
            say(f"  {store.label}: {words}")

    def _followed(self, runtime: str, store: Store) -> str:
        able = not why_not(runtime, self._device, store.compute)
        if able and (runtime != TORCH or self._is_large(store)):
            self._fastest.setdefault(_model(store).fingerprint, runtime)
        return runtime

    def _is_large(self, store: Store) -> bool:
        """Whether a pass is long enough to measure, by the operations that it takes."""
        kind, folder = torch.device(self._device).type, Path(on_this_machine(_model(store)).path)
        if kind not in _LEAST:
            return False
        cores = (os.cpu_count() or 1) if kind == "cpu" else 1
        ids, offsets, _ = tokenised_sample(store, self._workspace, SAMPLE)
        tokens = len(ids) / (len(offsets) - 1) * len(open_texts(self._workspace, store.texts))
        return 2.0 * _weights_per_token(folder) * tokens >= _LEAST[kind] * cores


def fastest(store: Store, workspace: Workspace, device: str, *, actors: int, threads: int) -> str:
    """Measure the runtimes that can run here on a sample of a store's texts, and choose one.

    Says in one line which was chosen, and what was measured; and in one line each which were refused.

    Args:
        store: The store that will be made.
        workspace: Holds its texts.
        device: Device that the teacher runs on.
        actors: Number of processes that will hold the teacher.
        threads: Threads per process.

    Returns:
        The runtime with the shortest estimated pass; PyTorch where nothing else can run, or nothing agrees
        with it.
    """
    others = [each for each in RUNTIMES if each != TORCH and not why_not(each, device, store.compute)]
    if not others:
        return TORCH
    weights = transformer_part(Path(on_this_machine(_model(store)).path)).glob("*.safetensors")
    needed = _COPIES * sum(file.stat().st_size for file in weights)
    if torch.device(device).type == "cpu" and needed > available_memory():
        say(f"  the teacher's runtime is torch: measuring others takes {needed / 1e9:.0f} GB of memory")
        return TORCH
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        bench = _Bench(store, workspace, device)
        tokens = bench.tokens_per_text * len(open_texts(workspace, store.texts))
        found = bench.measure(tokens, actors, others)
    finally:
        torch.set_num_threads(before)
    best = min(found, key=lambda each: each.seconds(tokens, actors))
    if len(found) > 1:
        rates = ", ".join(str(each) for each in found)
        say(f"  the teacher's runtime is {best.runtime}; tokens per second of one process: {rates}")
    return best.runtime


class _Bench:
    """The sample, and the runtimes that have been started on it."""

    def __init__(self, store: Store, workspace: Workspace, device: str) -> None:
        self._store, self._workspace, self._device = store, workspace, device
        self._ids, self._offsets, self._tokenizer = tokenised_sample(store, workspace, SAMPLE)
        self._passes: dict[str, Callable[[], Vectors]] = {}
        self._starts: dict[str, float] = {}
        self._vectors: dict[str, Vectors] = {}
        exact = self._started(replace(store, compute="float32"), "exact")
        self._reference_NE = exact()
        if store.compute == "float32":
            self._passes[TORCH], self._starts[TORCH] = exact, self._starts.pop("exact")
            self._vectors[TORCH] = self._reference_NE
        else:
            self._add(TORCH)

    @property
    def tokens_per_text(self) -> float:
        """Mean number of tokens per text."""
        return len(self._ids) / (len(self._offsets) - 1)

    def measure(self, tokens: float, actors: int, others: Sequence[str]) -> list[Measured]:
        """Measure PyTorch and whichever of the others can pay, all in turn.

        Args:
            tokens: Tokens of the whole pass.
            actors: Number of processes that will make it.
            others: Runtimes that can run here.
        """
        began = time.perf_counter()
        self._passes[TORCH]()
        expected = tokens / len(self._ids) * (time.perf_counter() - began) / actors
        for runtime in others:
            if expected >= _WORTH * _START[runtime]:
                self._try(runtime)
        seconds: dict[str, list[float]] = {runtime: [] for runtime in self._passes}
        for _ in range(_TURNS):
            for runtime, one_pass in self._passes.items():
                began = time.perf_counter()
                one_pass()
                seconds[runtime].append(time.perf_counter() - began)
        return [
            Measured(
                runtime,
                self._starts[runtime],
                len(self._ids) / statistics.median(seconds[runtime]),
                lowest_cosine(self._vectors[runtime], self._reference_NE),
            )
            for runtime in self._passes
        ]

    def _try(self, runtime: str) -> None:
        """Add a runtime if it converts the teacher and agrees with PyTorch; otherwise say why not."""
        try:
            self._add(runtime)
        except Exception as error:  # What runtimes and compilers raise has no common base class.
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            say(f"  {runtime} does not run this teacher: {reason.rstrip('.')}")
            self._passes.pop(runtime, None)

    def _add(self, runtime: str) -> None:
        store = replace(self._store, runtime=runtime)
        one_pass = self._started(store, runtime)
        self._passes[runtime], self._vectors[runtime] = one_pass, one_pass()
        of_torch = lowest_cosine(self._vectors[TORCH], self._reference_NE)
        require_agreement(store, lowest_cosine(self._vectors[runtime], self._reference_NE), of_torch)

    def _started(self, store: Store, name: str) -> Callable[[], Vectors]:
        """Start a runtime, and make a pass over a few texts, in which kernels are compiled."""
        began = time.perf_counter()
        running = start(store, self._workspace, self._device, torch.get_num_threads())
        forward = running.forward(store, self._tokenizer.pad_id, self._device)
        few = self._offsets[:9]
        forward(self._ids[: few[-1]], few)
        self._starts[name] = time.perf_counter() - began
        return lambda: forward(self._ids, self._offsets)


def _model(store: Store) -> Model:
    assert isinstance(store.teacher, Model), "only models run in a runtime"
    return store.teacher


def _weights_per_token(folder: Path) -> float:
    """Estimate the weights that a token is multiplied with: those of the layers, without the word vectors."""
    config = read_json(transformer_part(folder) / "config.json")
    config = {**config, **config.get("text_config", {})}
    hidden, layers = int(config.get("hidden_size", 768)), int(config.get("num_hidden_layers", 12))
    wide = int(config.get("intermediate_size", 4 * hidden))
    return layers * (4.0 * hidden * hidden + 2.0 * hidden * wide)
