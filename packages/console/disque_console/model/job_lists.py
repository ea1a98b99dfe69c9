"""The lists of jobs by stage, in the order in which people look at them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from disque_console.model.jobs import JobCopy, read_copy
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import DisqueError, ProtocolError

MOST: Final = 1_000  # jobs that a node tells of a list


@dataclass(frozen=True, slots=True)
class JobList:
    """A list.

    Attributes:
        stage: as JSCAN calls it. title: for people.
        when: the heading of the column with a time. order: what comes first.
    """

    stage: str
    title: str
    when: str
    order: str


LISTS: Final = (
    JobList("fresh", "Queued", "Waiting", "The job that has waited longest comes first."),
    JobList(
        "running",
        "Running",
        "Running",
        "The job that was taken, or of which its worker last spoke (WORKING), longest ago comes "
        "first.",
    ),
    JobList("delayed", "Scheduled", "Due in", "The job that is due next comes first."),
    JobList(
        "retrying",
        "Retrying",
        "Due in",
        "Jobs that came back: those that are in a queue again, then the one that is due next.",
    ),
    JobList("dead", "Dead", "Died", "The last dead letter comes first."),
)
BY_STAGE: Final[Mapping[str, JobList]] = {each.stage: each for each in LISTS}


@dataclass(frozen=True, slots=True)
class FirstJobs:
    """What a node tells of its jobs.

    Attributes:
        counts: the number of jobs by stage. on_disk: how many are on disk. unread: how many of
            these may be in the stage that was asked for, and were not looked at.
        copies: the first jobs of that stage.
    """

    counts: Mapping[str, int]
    on_disk: int
    copies: Sequence[JobCopy]
    unread: int = 0


def read_first(reply: Reply) -> FirstJobs:
    """Read a reply to JSCAN FIRST with REPLY all. Raises DisqueError."""
    if isinstance(reply, DisqueError):
        raise reply
    match reply:
        case [list(numbers), list(jobs)]:
            counts = {
                name.decode("ascii", "replace"): count
                for name, count in zip(numbers[::2], numbers[1::2], strict=False)
                if isinstance(name, bytes) and isinstance(count, int)
            }
            on_disk = counts.pop("on-disk", 0)
            unread = counts.pop("on-disk-unread", 0)
            copies = [copy for job in jobs if (copy := read_copy(job)) is not None]
            return FirstJobs(counts, on_disk, copies, unread)
    raise ProtocolError(f"not a reply to JSCAN FIRST: {reply!r:.100}")


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job in a list, as the node at ``address`` has it."""

    copy: JobCopy
    address: str


@dataclass(slots=True)
class ListedJobs:
    """The first jobs of a list on all nodes, in order.

    Attributes:
        counts: the number of jobs by stage. on_disk, unread: see ``FirstJobs``.
    """

    jobs: list[ListedJob] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BY_STAGE, 0))
    on_disk: int = 0
    unread: int = 0


def merge_first(told: Iterable[tuple[str, FirstJobs]], stage: str, now: float) -> ListedJobs:
    """What nodes ``told``, by address, of the jobs in ``stage``, at ``now`` (s since the epoch)."""
    found = ListedJobs()
    by_id: dict[str, ListedJob] = {}
    for address, first in told:
        for name, count in first.counts.items():
            if name in found.counts:
                found.counts[name] += count
        found.on_disk += first.on_disk
        found.unread += first.unread
        for copy in first.copies:
            # A job that waits for its time is on several nodes. The first to queue it counts.
            known = by_id.get(copy.id)
            if known is None or _rank(copy, stage, now) < _rank(known.copy, stage, now):
                by_id[copy.id] = ListedJob(copy, address)
    found.jobs = sorted(by_id.values(), key=lambda job: (_rank(job.copy, stage, now), job.copy.id))
    return found


def _rank(copy: JobCopy, stage: str, now: float) -> float:
    """Where a job is in its list, a time in s: the lowest comes first."""
    if stage == "running":
        return -(copy.client_since or 0) / 1000
    if stage == "dead":
        return -copy.created
    if stage == "fresh" or copy.state == "queued":
        return copy.created
    return due(copy, now)


def due(copy: JobCopy, now: float) -> float:
    """When a job that waits for its time is queued, in s since the epoch."""
    first = copy.created + copy.delay
    if copy.delay and now < first and not copy.nacks + copy.additional_deliveries:
        return first
    return now + (copy.requeued_in or 0.0)


def listed_for(copy: JobCopy, stage: str, now: float) -> float | None:
    """The time in the column ``when`` of a list, in s; None: unknown."""
    if stage == "running":
        return None if copy.client_since is None else copy.client_since / 1000
    if stage in ("fresh", "dead"):
        return max(now - copy.created, 0.0)
    return 0.0 if copy.state == "queued" else max(due(copy, now) - now, 0.0)
