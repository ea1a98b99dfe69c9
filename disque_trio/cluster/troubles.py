"""What keeps a node from taking copies of jobs, as it announces it in each of its packets: a number
of 16 bits, the lower ones TROUBLE_* bits, the upper ones why it cannot write its file."""

from typing import Final

TROUBLE_MEMORY: Final = 1  # it is short of memory
TROUBLE_FILE: Final = 2  # it cannot write its append-only file
TROUBLE_FULL: Final = 4  # it is so short of memory that it takes no jobs at all, even for others

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


def trouble_of(short: bool, problem: str, full: bool = False) -> int:
    """The trouble of a node that is ``short`` of memory, or whose memory is ``full``, or that has a
    ``problem`` with its file."""
    trouble = TROUBLE_MEMORY if short or full else 0
    if full:
        trouble |= TROUBLE_FULL
    if problem:
        trouble |= TROUBLE_FILE | _NUMBERS.get(problem, 0) << _REASON_SHIFT
    return trouble


def describe_trouble(trouble: int) -> str:
    """What a node with ``trouble`` does or is, to follow its address; empty: nothing is wrong."""
    if trouble & TROUBLE_FILE:
        reason = _REASONS.get(trouble >> _REASON_SHIFT)
        return "cannot write its file" + (f" ({reason})" if reason else "")
    if trouble & TROUBLE_FULL:
        return "has no memory left"
    return "is short of memory" if trouble & TROUBLE_MEMORY else ""
