"""What keeps a node from taking copies of jobs, or makes it slow, as it announces it in each of its
packets: a number of 16 bits, the lower ones TROUBLE_* bits, the upper ones why it cannot write its
file."""

from typing import Final

TROUBLE_MEMORY: Final = 1  # it is short of memory
TROUBLE_FILE: Final = 2  # it cannot write its append-only file
TROUBLE_FULL: Final = 4  # it is so short of memory that it takes no jobs at all, even for others

TROUBLE_SLOW: Final = 8  # its disk is slow: an fsync of its file takes long
TAKES_NONE: Final = TROUBLE_MEMORY | TROUBLE_FILE | TROUBLE_FULL

_REASON_SHIFT: Final = 8
_REASONS: Final = {  # by number, as in Linux's errno
    5: "Input/output error",
    13: "Permission denied",
    27: "File too large",
    28: "No space left on device",
    30: "Read-only file system",
    122: "Disk quota exceeded",
}
_NUMBERS: Final = {text: number for number, text in _REASONS.items()}


def trouble_of(short: bool, problem: str, full: bool = False, slow: bool = False) -> int:
    """The trouble of a node that is ``short`` of memory, or whose memory is ``full``, or that has a
    ``problem`` with its file, or whose disk is ``slow``."""
    trouble = TROUBLE_MEMORY if short or full else 0
    if full:
        trouble |= TROUBLE_FULL
    if slow:
        trouble |= TROUBLE_SLOW
    if problem:
        trouble |= TROUBLE_FILE | _NUMBERS.get(problem, 0) << _REASON_SHIFT
    return trouble


def describe_trouble(trouble: int) -> str:
    """Why a node with ``trouble`` takes no copies, to follow its address; empty: it takes some."""
    if trouble & TROUBLE_FILE:
        reason = _REASONS.get(trouble >> _REASON_SHIFT)
        return "cannot write its file" + (f" ({reason})" if reason else "")
    if trouble & TROUBLE_FULL:
        return "has no memory left"
    return "is short of memory" if trouble & TROUBLE_MEMORY else ""
