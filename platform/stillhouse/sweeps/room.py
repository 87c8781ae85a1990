"""Placement of a sweep's measurements and exports: its driver's node, or one with room for a trial."""

import dataclasses
import shutil
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from stillhouse.cluster.resources import Need, call, has_room_here, largest_share
from stillhouse.core.artifacts import FETCHING, Workspace
from stillhouse.core.console import doing, say
from stillhouse.core.remotes import Remote, files_in
from stillhouse.values.setting import Setting

_KIND = "brought"
"""Folder of the remote for what is on its way from one node to another."""

Result = TypeVar("Result")


class Room:
    """A node with the resources of one worker of a trial: this one if it has them, else another.

    A GPU is reserved in any case. Vectors in files are where the driver is, so a sweep with such a teacher
    stays there. ``need`` are the resources of one trial.
    """

    def __init__(self, workspace: Workspace, need: Need, setting: Setting) -> None:
        self._workspace, self._need, self._setting = workspace, need, setting

    def call(self, what: str, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function where there is room, and return its result.

        ``what`` is what it does, for whoever waits, such as ``measuring models``. The function, its arguments
        and its result are pickled on their way.
        """
        with doing(what):
            if self._is_here:
                return function(*arguments)
            alone = largest_share(dataclasses.replace(self._need, workers=1), 1)
            return call(function, *arguments, need=alone)

    def fill(self, what: str, folder: Path, function: Callable[..., Result], *arguments: Any) -> Result:
        """Let a function write a folder, its first argument, where there is room, and have the folder here.

        The folder's path is the same on every node.
        """
        remote = self._workspace.remote
        if self._is_here or remote is None:  # Without a remote all nodes see one root.
            return self.call(what, function, folder, *arguments)
        key = f"{_KIND}/{folder.parent.name}-{folder.name}"
        result: Result = self.call(what, _written, self._workspace, remote, key, function, folder, *arguments)
        shutil.rmtree(folder, ignore_errors=True)
        remote.fetch(key, folder, self._workspace.root / FETCHING / key)
        remote.remove(key)
        return result

    @cached_property
    def _is_here(self) -> bool:
        in_files = any(each.imported for each in self._setting.teacher.members)
        if in_files or has_room_here(self._need):
            return in_files or not self._need.gpus
        say("  what follows runs on another node, since this one has less than a trial needs")
        return False


def _written(
    workspace: Workspace,
    remote: Remote,
    key: str,
    function: Callable[..., Result],
    folder: Path,
    *arguments: Any,
) -> Result:
    """Write a folder on this node, publish it, and remove it."""
    workspace.claim()  # The folder may be the first that this node has of the workspace.
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        result = function(folder, *arguments)
        remote.replace({name: folder / name for name in files_in(folder)}, key)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return result
