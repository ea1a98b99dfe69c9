"""How much memory jobs and queues take, and what that allows.

Sizes are counted, not measured, so that the steps are the same on every machine and in every
run: 75% of maxmemory stops local copies of new jobs, 95% starts eviction.
"""

from typing import Final

from disque_trio.core.job import Job

UNLIMITED: Final = 1 << 62


class Memory:
    """The account of one node.

    Attributes:
        used: bytes of jobs and queues.
        peak: the most that ``used`` was when looked at.
        limit: maxmemory, bytes, 0: no limit.
        external_above: above this new jobs are only placed on other nodes (75%).
        evict_above: above this jobs that may go are evicted (95%).
        policy_acks: maxmemory-policy is acks (else noeviction).
        evictable: jobs that may be deleted without breaking a promise, the longest known first:
            acknowledged ones, and at-most-once ones that were delivered.
    """

    __slots__ = (
        "evict_above",
        "evictable",
        "external_above",
        "limit",
        "peak",
        "policy_acks",
        "used",
    )

    def __init__(self, limit: int) -> None:
        self.used = 0
        self.peak = 0
        self.policy_acks = True
        self.evictable: dict[bytes, Job] = {}
        self.set_limit(limit)

    def set_limit(self, limit: int) -> None:
        """Set maxmemory to ``limit`` bytes, 0: no limit."""
        self.limit = limit
        self.external_above = limit * 75 // 100 if limit else UNLIMITED
        self.evict_above = limit * 95 // 100 if limit else UNLIMITED

    def level(self) -> int:
        """0 below 75% of maxmemory, 1 above it, 2 above 95%."""
        if self.used <= self.external_above:
            return 0
        return 1 if self.used <= self.evict_above else 2

    def note_peak(self) -> int:
        """The most that was used, as far as it was looked at."""
        self.peak = max(self.peak, self.used)
        return self.peak

    def clear(self) -> None:
        """All jobs and queues are gone."""
        self.hand_over()

    def hand_over(self) -> dict[bytes, Job]:
        """All jobs and queues are gone; those that could have been deleted are returned."""
        self.note_peak()
        self.used = 0
        evictable, self.evictable = self.evictable, {}
        return evictable
