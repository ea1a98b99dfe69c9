"""Hides passwords on the command line from anyone who lists the processes of the machine."""

from collections.abc import Collection
from pathlib import Path


def hide(secrets: Collection[str]) -> None:
    """Overwrite the arguments of this process that are, or contain, one of ``secrets``, where the
    system shows them (``/proc/PID/cmdline``, ps). ``sys.argv`` still has them. Does nothing if the
    system has no such place. Cannot help against those who looked before."""
    import ctypes  # slow, and few processes need it

    try:
        # The fields after the name, which may contain anything, start with the third.
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[48 - 3]), int(fields[49 - 3])
        shown = Path("/proc/self/cmdline").read_bytes()
    except (OSError, ValueError, IndexError):
        return
    if start == 0 or len(shown) != end - start or ctypes.string_at(start, end - start) != shown:
        return
    for secret in secrets:
        word = secret.encode("utf-8", "surrogateescape")
        at = shown.find(word) if word else -1
        while at >= 0:
            ctypes.memset(start + at, ord("*"), len(word))
            at = shown.find(word, at + len(word))
