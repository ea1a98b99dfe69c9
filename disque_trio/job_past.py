"""What a job has been through that was no failure of its task: workers that stopped, or died.

The count travels with the job, at the end of the reason of its last NACK, which all nodes that hold
the job know. So workers on any machine agree on it, and it needs nothing of a node. A job is a
suspect after two crashes of a process that had it: it then runs alone in a process of its own. Only
crashes of a process that ran nothing else count against a job; after three of them it is refused.
"""

import re
from dataclasses import dataclass, replace
from typing import Final

SUSPECT: Final = 2
"""Crashes after which a job runs in a process of its own."""

MOST: Final = 3
"""Crashes of a process that ran nothing else after which a job is refused."""

_MOST_BYTES: Final = 4000  # of a reason; a node accepts 4096
_FIRST_PAUSE: Final = 0.5  # s
_LAST_PAUSE: Final = 60.0
_COUNTS: Final = re.compile(r"(.*) \[(\d+) returned, (\d+) crashes, (\d+) alone\]", re.DOTALL)


_HEADING: Final = "Traceback (most recent call last):"
_TRACE: Final = "\nTraceback, the last calls:\n"
_MOST_TRACE: Final = 2_400  # bytes


def with_trace(error: str, trace: str) -> str:
    """Append the end of a traceback to an error, so that it goes with a NACK.

    Args:
        trace: made by ``traceback_of``; empty: there is none.
    """
    lines = trace.split("\n")
    if lines[0] == _HEADING:
        del lines[0]
    while lines and not lines[-1].startswith(" "):  # the exception, which ``error`` says
        del lines[-1]
    kept: list[str] = []
    size = 0
    for line in reversed(lines):
        size += len(line.encode("utf-8", "replace")) + 1
        if size > _MOST_TRACE:
            break
        kept.insert(0, line)
    if len(kept) < len(lines):  # begin with a whole call
        first = next((n for n, line in enumerate(kept) if 'File "' in line), 0)
        del kept[:first]
    return error + _TRACE + "\n".join(kept) if kept else error


def split_trace(reason: str) -> tuple[str, str]:
    """The error and the traceback in a reason that ``with_trace`` made; the traceback is empty if
    there is none."""
    error, _, trace = reason.partition(_TRACE)
    return error, trace


@dataclass(frozen=True, slots=True)
class Past:
    """What a job has been through.

    Attributes:
        returned: how many of its NACKs were no failures of its task.
        crashes: how many of these because the process that had it died.
        alone: how many of these processes ran nothing else.
        said: the rest of its last reason.
    """

    returned: int = 0
    crashes: int = 0
    alone: int = 0
    said: str = ""

    @staticmethod
    def read(reason: str) -> "Past":
        """Read the reason of a job's last NACK."""
        found = _COUNTS.fullmatch(reason)
        if found is None:
            return Past(said=reason)
        return Past(int(found[2]), int(found[3]), int(found[4]), found[1])

    @property
    def is_suspect(self) -> bool:
        """Whether the job has to run in a process of its own."""
        return self.crashes >= SUSPECT

    @property
    def is_guilty(self) -> bool:
        """Whether the job may not run again."""
        return self.alone >= MOST

    @property
    def pause(self) -> float:
        """Seconds until the job comes again after a crash."""
        return min(_FIRST_PAUSE * 2.0 ** min(max(self.crashes - 1, 0), 60), _LAST_PAUSE)

    def reason(self, error: str = "") -> bytes:
        """The reason for a NACK because of ``error``; empty: the last reason again."""
        counts = ""
        if self.returned:
            counts = f" [{self.returned} returned, {self.crashes} crashes, {self.alone} alone]"
        return _cut(error or self.said, _MOST_BYTES - len(counts)) + counts.encode()

    def stopped(self) -> "Past":
        """The past of the job once a worker has given it back because it stopped."""
        return replace(self, returned=self.returned + 1, said=self.said or "its worker stopped")

    def postponed(self, why: str) -> "Past":
        """The past of the job once a worker has given it back that cannot run it now."""
        return replace(self, returned=self.returned + 1, said=why)

    def crashed(self, how: str, *, alone: bool) -> "Past":
        """The past of the job once the process that had it has died.

        Args:
            how: see ``death``.
            alone: whether that ran nothing else.
        """
        return Past(self.returned + 1, self.crashes + 1, self.alone + alone, how)


NOTHING: Final = Past()


def death(how: str, memory: int | None) -> str:
    """Describe that a process died that ran tasks.

    Args:
        how: such as ``exit status 1``.
        memory: the most memory that it used, in bytes; None: that is not known.
    """
    used = "" if memory is None else f", memory {memory / (1 << 20):.0f} MiB"
    return f"its process died: {how}{used}"


def _cut(text: str, most: int) -> bytes:
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore").encode()
