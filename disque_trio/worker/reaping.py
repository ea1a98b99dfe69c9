"""Waits for processes, and learns how much memory they use."""

import os
import subprocess


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
