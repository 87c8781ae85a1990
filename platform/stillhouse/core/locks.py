"""Locks of files, all taken here; the operating system releases them however their process ends."""

import errno
import fcntl
import os
from pathlib import Path
from typing import IO

from stillhouse.core.errors import BadInput

SHARED, ALONE = fcntl.LOCK_SH, fcntl.LOCK_EX
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
"""Answers of a mount without locks: Lustre without ``-o flock``, many FUSE mounts, NFS without its daemon."""


def lock_file(path: Path) -> IO[str]:
    """Open a lock file, which is created: for reading too, which a shared lock on NFS 4 needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a+")


def lock(file: IO[str], kind: int, *, wait: bool = False) -> bool:
    """Take a lock, `SHARED` or `ALONE`, or change to it, until the file is closed.

    Without ``wait`` it returns False if another holder is in the way.

    Raises:
        BadInput: The file system has no locks.
    """
    try:
        fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        path = Path(file.name).resolve()
        mount = next(folder for folder in path.parents if os.path.ismount(folder))
        raise BadInput(
            f"the file system of the workspace must lock files, but the one mounted at {mount} answered: "
            f"{error.strerror} ({path}). Mount it with locks (NFS 4; Lustre with -o flock), or give a --root "
            "on a disk of this node, with a --remote for what nodes share."
        ) from None
    return True
