"""Keeps what people do to queues and to the cluster until the log tells it.

What one user does of one kind, from one machine, is one line a minute: the first time is told at
once, all others of the minute together. It does no I/O and has no clock.
"""

from typing import Final, NamedTuple

EVERY: Final = 60_000  # ms between two lines about the same kind, user and machine
MOST_NAMES: Final = 5  # that a line has
MOST_KEPT: Final = 1_000  # kinds, users and machines; beyond that, those of no name count as one

QUEUE_PURGED: Final = "queue purged"
JOBS_MOVED: Final = "jobs moved"
LETTERS_REDRIVEN: Final = "dead letters sent back"
JOBS_CANCELLED: Final = "jobs cancelled"
PAUSED: Final = "queue paused"
RESUMED: Final = "queue resumed"
POLICY_SET: Final = "policy changed"
POLICY_DELETED: Final = "policy deleted"
MET: Final = "asked to meet a node"
FORGOTTEN: Final = "asked to forget a node"
LEAVES: Final = "asked to leave the cluster"
STAYS: Final = "asked to stay in the cluster"
EXPELLED: Final = "asked to keep a key out"
READMITTED: Final = "asked to let a key in again"
RESET: Final = "asked to forget the cluster"
WORKER_STOPPED: Final = "asked a worker to stop"

MANY_CANCELLED: Final = 10  # ids in a CANCEL that is told


class Deeds(NamedTuple):
    """What somebody did.

    Attributes:
        what: one of the texts above.
        user: who did it; address: from where, the first time.
        names: of the first few queues, or nodes, that it was done to.
        times: how often.
        jobs: how many were named; 0: none were.
    """

    what: str
    user: str
    address: str
    names: tuple[str, ...]
    times: int
    jobs: int


class DeedTeller:
    """Interface to the log."""

    def did(self, deeds: Deeds) -> None:
        """Tell ``deeds``."""
        raise NotImplementedError


class _Kept:
    """What was done since it was told last, at ``told_at``."""

    __slots__ = ("address", "jobs", "names", "times", "told_at")

    def __init__(self, now: int) -> None:
        self.told_at = now
        self.address = ""
        self.names: list[str] = []
        self.times = 0
        self.jobs = 0


class DeedKeeper:
    """What was done in the last minute."""

    def __init__(self, teller: DeedTeller) -> None:
        self._teller = teller
        self._kept: dict[tuple[str, str, str], _Kept] = {}

    def done(self, what: str, user: str, address: str, about: str, now: int, jobs: int = 0) -> None:
        """Take that ``user`` has done ``what`` from ``address`` (with a port) to ``about``, at
        ``now`` (ms)."""
        key = what, user, address.rpartition(":")[0]
        if key not in self._kept and len(self._kept) >= MOST_KEPT:
            key = what, "", ""
        kept = self._kept.get(key)
        if kept is None:
            self._kept[key] = _Kept(now)
            self._teller.did(Deeds(what, user, address, (about,) if about else (), 1, jobs))
            return
        kept.times += 1
        kept.jobs += jobs
        kept.address = kept.address or address
        if about and about not in kept.names and len(kept.names) < MOST_NAMES:
            kept.names.append(about)

    def look(self, now: int) -> None:
        """Tell what has waited for a minute at ``now``."""
        for key, kept in list(self._kept.items()):
            if 0 <= now - kept.told_at < EVERY:
                continue
            if not kept.times:
                del self._kept[key]
                continue
            self._kept[key] = _Kept(now)
            self._tell(key, kept)

    def end(self) -> None:
        """Tell what still waits: the server stops."""
        for key, kept in self._kept.items():
            if kept.times:
                self._tell(key, kept)
        self._kept.clear()

    def _tell(self, key: tuple[str, str, str], kept: _Kept) -> None:
        what, user, _ = key
        names = tuple(kept.names)
        self._teller.did(Deeds(what, user, kept.address, names, kept.times, kept.jobs))
