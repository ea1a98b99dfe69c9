"""Counts the memory that jobs or events take, and decides what the limits still allow.

Sizes are counted, not measured, so that the thresholds are the same on every machine and in every
run: above 75% of maxmemory there are no local copies of new jobs, above 95% eviction starts.
"""

from typing import Final

UNLIMITED: Final = (1 << 62) - 1  # compiled, the largest number that is not an object


# What is counted for users with a budget.
MEMORY: Final = 0  # bytes of jobs, of their results, and of paused queues
KEYS: Final = 1  # of UNIQUE
SCHEDULES: Final = 2
BINDINGS: Final = 3
POLICIES: Final = 4


class Shares:
    """Interface to the account of what each user with a budget has (``node.core.user_budgets``)."""

    def add(self, queue: bytes, kind: int, amount: int) -> None:
        """Count that there is so much more in ``queue``; less, if ``amount`` is negative."""
        raise NotImplementedError

    def job_grew(self, job_id: bytes, queue: bytes, size: int) -> None:
        """Count that the job ``job_id``, in ``queue``, takes ``size`` bytes more (or less)."""
        raise NotImplementedError

    def queue_grew(self, queue: bytes, size: int) -> None:
        """Count that ``queue`` itself takes ``size`` bytes more (or less)."""
        raise NotImplementedError

    def exceeds(self, queue: bytes) -> bool:
        """Whether one of those who may add to ``queue`` has more bytes than allowed."""
        raise NotImplementedError

    def counts(self, job_id: bytes) -> bool:
        """Whether the job ``job_id`` is counted already: all are, once the account is complete."""
        raise NotImplementedError


class Memory:
    """The memory account of one program.

    Attributes:
        used: bytes of everything that is held.
        on_disk: bytes of what is held, but lies on disk.
        peak: the highest ``used`` so far.
        limit: maxmemory, in bytes; 0: no limit.
        external_above: above this, new jobs are only placed on other nodes (75%).
        evict_above: above this, what may go is evicted (95%).
        shares: the account for users; None: no user has had a budget so far.
    """

    def __init__(self, limit: int) -> None:
        self.used = 0
        self.on_disk = 0
        self.peak = 0
        self.shares: Shares | None = None
        self.set_limit(limit)

    def set_limit(self, limit: int) -> None:
        """Set maxmemory to ``limit`` bytes; 0: no limit."""
        self.limit = limit
        self.external_above = limit * 75 // 100 if limit else UNLIMITED
        self.evict_above = limit * 95 // 100 if limit else UNLIMITED

    def level(self) -> int:
        """0 below 75% of maxmemory, 1 above it, 2 above 95%."""
        if self.used <= self.external_above:
            return 0
        return 1 if self.used <= self.evict_above else 2

    def note_peak(self) -> int:
        """Update the peak of the used memory."""
        self.peak = max(self.peak, self.used)
        return self.peak

    def clear(self) -> None:
        """Reset the account: nothing is held any more."""
        self.note_peak()
        self.used = 0
