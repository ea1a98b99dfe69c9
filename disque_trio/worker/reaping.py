"""Waits for processes, and learns how much memory they use."""

import math
import os
import subprocess
from pathlib import Path
from typing import Final


def reap(popen: "subprocess.Popen[bytes]", options: int = os.WNOHANG) -> int | None:
    """Note in ``popen`` if its process has ended.

    Args:
        options: 0 waits for the end.

    Returns:
        The most memory that it used, in bytes; None: it has not ended, or that is not known.
    """
    if popen.returncode is not None:
        return None
    try:
        pid, status, usage = os.wait4(popen.pid, options)
    except ChildProcessError:
        popen.poll()  # somebody else has waited for it
        return None
    if not pid:
        return None
    popen.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss << 10


def memory_of(pid: int | str = "self") -> int:
    """Return the resident memory of a process, in bytes; 0: it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


_CGROUPS: Final = Path("/sys/fs/cgroup")


def memory_limit() -> float:
    """Return how much memory all processes of a worker may use, in bytes: that of the machine, or
    of the container or the service in which it runs; infinite: that is not known."""
    limits = [math.inf]
    try:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        own = Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    except (OSError, ValueError):
        return min(limits)
    group = _CGROUPS / own
    for place in (group, *group.parents):
        try:
            limits.append(int((place / "memory.max").read_text()))
        except (OSError, ValueError):  # there is none, or it is "max"
            continue
    return min(limits)
