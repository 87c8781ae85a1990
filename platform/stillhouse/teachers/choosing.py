"""The runtime of a store: the one that was asked for, that of the vectors that exist, or one by a rule.

The rule needs no clock: a large table is embedded in OpenVINO where its extra is installed, the pass is in
bfloat16 on a CPU, and its vectors agree with PyTorch's; all else in PyTorch.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stillhouse.core.artifacts import Workspace
from stillhouse.core.console import say
from stillhouse.core.machine import available_memory
from stillhouse.core.model_folder import read_folder
from stillhouse.corpora.tables import open_texts
from stillhouse.teachers.runtimes import (
    require_convertible,
    require_runtime,
    unconvertible,
    why_not,
    why_unfit,
)
from stillhouse.teachers.weights import on_this_machine
from stillhouse.values.data import AUTO, OPENVINO, RUNTIMES, TORCH, Store, StoreEnsemble, TableStore

LARGE = 20_000
"""Texts of a table from which converting the teacher takes less time than OpenVINO saves."""
_COPIES = 4
"""How often the teacher's weights are in memory, at most, while it is converted."""


class Chooser:
    """Chooses the runtimes of an experiment's stores; the same store gets the same answer.

    ``wanted`` has ``auto`` or the name of a runtime, for each teacher.
    """

    def __init__(self, wanted: Sequence[str], workspace: Workspace, device: str, *, threads: int = 1) -> None:
        self._wanted, self._workspace, self._device, self._threads = wanted, workspace, device, threads
        self._known: dict[str, Store] = {}
        self._open: set[str] = set()
        """Stores that run in PyTorch unless the rule says otherwise, by their fingerprints."""
        self._fit: dict[tuple[str, int], bool] = {}
        """Whether OpenVINO computes a teacher's vectors, by its fingerprint and length."""
        self._said: set[str] = set()

    def choose(self, store: TableStore) -> TableStore:
        """Give a store the runtime that is asked for or that computed it; PyTorch where neither says one.

        Each store of several teachers gets a runtime of its own.

        Raises:
            BadInput: The runtime that is asked for cannot run here, or not this teacher.
        """
        single = store.stores
        chosen = tuple(self._chosen(each, wanted) for each, wanted in zip(single, self._wanted, strict=True))
        return StoreEnsemble(store.texts, chosen, store.weights) if store.weights else chosen[0]

    def decide(self, store: Store) -> Store:
        """Give a store that is to be made the runtime that the rule says, where `choose` left it open."""
        return replace(store, runtime=self._by_rule(store)) if store.fingerprint in self._open else store

    def _chosen(self, store: Store, wanted: str) -> Store:
        if store.teacher.checkpoint is None:
            return store
        key = store.fingerprint
        if key not in self._known:
            runtime = wanted
            if wanted == AUTO:
                runtime = self._existing(store)
                if not runtime:
                    self._open.add(key)
            else:
                require_runtime(wanted, self._device, store.compute)
                require_convertible(replace(store, runtime=wanted))
            self._known[key] = replace(store, runtime=runtime or TORCH)
        return self._known[key]

    def _existing(self, store: Store) -> str:
        """Find the runtime of vectors that exist, finished or half made; empty if there are none."""
        stores = [replace(store, runtime=runtime) for runtime in RUNTIMES]
        finished = [each.runtime for each in stores if self._workspace.finished(each)]
        begun = [
            each.runtime
            for each in stores
            if any(self._workspace.path(each).glob("part-*.arrow"))
            and not why_not(each.runtime, self._device, store.compute)
        ]
        runtime = next(iter((*finished, *begun)), "")
        if runtime not in ("", TORCH):
            self._say_once(f"{store.model.name}: taking the vectors that exist, computed by {runtime}")
        return runtime

    def _by_rule(self, store: Store) -> str:
        able = store.compute == "bfloat16" and not why_not(OPENVINO, self._device, store.compute)
        if not able or unconvertible(store) or len(open_texts(self._workspace, store.texts)) < LARGE:
            return TORCH
        key = store.teacher.fingerprint, store.max_length
        if key not in self._fit:
            self._fit[key] = self._runs_in_openvino(store)
        return OPENVINO if self._fit[key] else TORCH

    def _runs_in_openvino(self, store: Store) -> bool:
        weights = read_folder(Path(on_this_machine(store.model).path)).transformer.glob("*.safetensors")
        needed = _COPIES * sum(file.stat().st_size for file in weights)
        if needed > available_memory():
            reason = f"converting it takes {needed / 1e9:.0f} GB of memory"
        else:
            converted = replace(store, runtime=OPENVINO)
            reason = why_unfit(converted, self._workspace, self._device, self._threads)
        where = f"PyTorch, not in OpenVINO: {reason}" if reason else "OpenVINO"
        self._say_once(f"{store.model.name} runs in {where}")
        return not reason

    def _say_once(self, line: str) -> None:
        """Say something of a teacher once; a mix of sources has many stores."""
        if line not in self._said:
            self._said.add(line)
            say(f"  the teacher {line}")
