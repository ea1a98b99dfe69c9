"""Space that a file has on the disk beyond its end.

So a node whose disk is full takes no more jobs, but goes on with those that it has: what it writes
about them, such as that they were acknowledged, fits into that space, which nobody else can take.
The size of the file does not show it.
"""

import errno
import os
from collections.abc import Callable
from typing import Final

from disque_trio.aof.disk import Disk

LEAST: Final = 8 << 20  # bytes to reserve, and to get at a time, unless the disk is small
_SMALL: Final = 64 << 20  # bytes of a disk; of a smaller one, less is reserved
_END: Final = 80  # bytes of the record for the end of a job or event
_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_UNLIMITED: Final = 1 << 62


class Room:
    """The space for a file of ``disk``.

    Args:
        held: returns the number of jobs, or events, in the file; there is a reserve for the end of
            each.
        least: bytes to reserve besides, unless the disk is small.

    Attributes:
        problem: why there is only the reserve left; empty: there is more.
        enough: up to this size of the file nothing has to be done.
        on_more: called when it has got more, for files that need room as this one grows.
        free: bytes of the file system that nothing takes, when it was last looked at.
    """

    def __init__(self, disk: Disk, held: Callable[[], int], least: int = LEAST) -> None:
        self.problem = ""
        self.enough = 0
        self.on_more: Callable[[], None] = nobody
        self.free = 0
        self._disk = disk
        self._held = held
        self._until = 0
        self._least = least
        self._step = 0

    def begin(self, fd: int, size: int) -> None:
        """Go on with the file ``fd`` of ``size`` bytes."""
        self._until = max(size, self._disk.allocated(fd))
        self.extend(fd, size)

    def cut(self, fd: int, size: int) -> None:
        """Note that the file was cut to ``size`` bytes: what was reserved is gone."""
        self._until = size
        self.extend(fd, size)

    def left(self, size: int) -> int:
        """Reserved bytes of a file of ``size`` bytes."""
        return max(self._until - size, 0)

    def extend(self, fd: int, size: int) -> None:
        """Reserve more space for the file, which has, or is about to get, ``size`` bytes. If that
        fails there is a ``problem``; call it again from time to time."""
        self.problem = ""
        self.enough = _UNLIMITED  # unless it succeeds, the next turn would only try in vain
        try:
            capacity, self.free = self._disk.space(fd)
            longest = self._disk.longest()
            self._step = self._least * min(capacity, longest, _SMALL) // _SMALL
            reserve = self._step + _END * self._held()
            until = size + reserve + self._step
            wanted = until - self._until
            if wanted > 0:
                if self.free < wanted + self._step:  # the rest is for other files
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if until > longest:  # what is left is the reserve
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
                self._disk.reserve(fd, self._until, wanted)
                self._until = until
        except OSError as failure:
            if failure.errno in _FULL:
                self.problem = failure.strerror or str(failure)
            return  # or the file system cannot reserve anything
        self.enough = self._until - reserve - self._step // 2
        self.on_more()


def nobody() -> None:
    """For ``on_more``, as long as nobody wants to know."""
