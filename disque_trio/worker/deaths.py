"""What becomes of the jobs of a worker process that has died.

Nobody knows which of them has killed it, unless it ran only one. So they come back apart from each
other, after a pause, and those that were in several such processes run alone (see ``job_past``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

from disque_trio.process.fleet import Member, State
from disque_trio.worker.ledger import APART, ENDED, RUNNING, TAKEN, LedgerEntry

Why: TypeAlias = Literal["died", "stopped", "late"]
"""Why a process has ended: it died, or it was to stop, or a task blocked it beyond its timeout, and
it was killed for that."""

T = TypeVar("T")

_KILLED: Final[dict[str, Why]] = {"blocked": "late", "stuck": "died"}

APART_BY: Final = 0.3
"""Seconds between two jobs of a process that come back."""


@dataclass(frozen=True, slots=True)
class Return:
    """How a job is given back.

    Attributes:
        entry: the job.
        delay: seconds until it comes again.
        reason: the reason for NACK; empty: none, and ENQUEUE gives it back.
    """

    entry: LedgerEntry
    delay: float
    reason: bytes


class Dice(Protocol):
    """Chance, such as the module ``random``."""

    def sample(self, population: Sequence[T], k: int) -> list[T]: ...


def why_of(member: Member, status: int) -> Why:
    """Return why the process of ``member`` has ended, with this exit status."""
    if member.killed:
        return _KILLED.get(member.reason, "stopped")
    return "stopped" if member.state is State.RETIRING and status == 0 else "died"


def returns(
    entries: Sequence[LedgerEntry], why: Why, how: str, now: float, dice: Dice
) -> list[Return]:
    """Decide how the jobs of a process that has ended are given back.

    Args:
        entries: its jobs.
        how: how it ended; see ``death``.
        now: when (time.monotonic).
    """
    # A job may have come again to its process after its task had ended there, or while it ran.
    once = {entry.id: entry for entry in sorted(entries, key=lambda entry: entry.state == RUNNING)}
    entries = list(once.values())
    running = [entry for entry in entries if entry.state == RUNNING]
    late = [entry for entry in running if why == "late" and entry.deadline <= now]
    found: list[Return] = []
    apart = 0
    for entry in dice.sample(entries, len(entries)):
        if entry.state == TAKEN:
            found.append(Return(entry, 0, b""))
        elif entry in late:
            reason = entry.past.reason(f"TimeoutError: its process was killed: {how}")
            found.append(Return(entry, entry.past.pause, reason))
        elif why == "died" and entry.state == RUNNING:
            past = entry.past.crashed(how, alone=len(running) == 1)
            delay = past.pause
            if not past.is_suspect:
                delay += APART_BY * apart
                apart += 1
            found.append(Return(entry, delay, past.reason()))
        else:
            assert entry.state in (RUNNING, APART, ENDED)
            found.append(Return(entry, 0, entry.past.stopped().reason()))
    return found
