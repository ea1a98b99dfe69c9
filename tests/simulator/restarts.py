"""What a node knows after a clean stop and a start: the same as before."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from disque_trio.node.core.jobs.job import (
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_HOLDS_GROUP,
    FLAG_NACKED,
    FLAG_PAUSED,
    QUEUED,
    Job,
)
from disque_trio.node.core.queues.recovery import CONNECTING
from disque_trio.node.core.queues.store import WARNING_TIME

if TYPE_CHECKING:
    from tests.simulator.machine import Machine
from tests.simulator.records import Complain

PAUSE = FLAG_PAUSED | FLAG_NACKED
ASKED_FIRST = CONNECTING + WARNING_TIME  # ms after a start in which other holders are asked first


@dataclass(slots=True)
class Memory:
    """What one node knows of its jobs that workers and operators can tell, by job id.

    Attributes:
        queued: in the order of each line: of a queue, or of a group that has a line of its own.
        asking: jobs that it queues once it has asked the other holders.
        in_hand: when clients got the jobs that they have, in ms.
        pauses: until when jobs pause, in ms, and why.
        counts: nacks, further deliveries, attempts by node, and the reason of the last NACK.
        results: how jobs ended, and their results.
        places: the jobs that count for ACTIVE, by queue, and for GROUPACTIVE, by group.
        groups: the jobs that hold their groups.
        stopped: paused queues, and how. keys: of UNIQUE.
        ends: when the times to live of jobs, keys and results are over, in ms.
    """

    queued: dict[tuple[bytes, bytes], list[bytes]]
    asking: set[bytes]
    in_hand: dict[bytes, int]
    pauses: dict[bytes, tuple[int, int]]
    counts: dict[bytes, tuple[int, int, dict[bytes, int], bytes]]
    results: dict[bytes, tuple[int, bytes | None]]
    places: dict[bytes | tuple[bytes, bytes], set[bytes]]
    groups: set[bytes]
    stopped: dict[bytes, int]
    keys: dict[tuple[bytes, bytes], bytes]
    ends: dict[bytes | tuple[bytes, bytes], int]


def remember(machine: "Machine") -> Memory:
    """What ``machine`` knows now."""
    node = machine.node
    store = node.store
    now = machine.now()
    # Of at-most-once jobs that were delivered, a node need not know anything.
    jobs = [
        job
        for job in machine.jobs.values()
        if job.state == QUEUED or (job.state == ACTIVE and not _is_spent(job))
    ]
    in_hand = [job for job in jobs if _is_in_hand(job)]
    queued: dict[tuple[bytes, bytes], list[bytes]] = {}
    for queue in node.queues.by_name.values():
        for job in machine.jobs.in_order(queue):
            group = store.trailers.group(job) if machine.world.plan.groups else b""
            queued.setdefault((queue.name, group), []).append(job.id)
    endings = [*store.outcomes.kept.entries(), *store.outcomes.cancelled.entries()]
    keys = [
        entry
        for entry in store.uniques.entries.values()
        if entry.until > now
        and entry.id not in store.uniques.adding
        and not _is_spent(machine.jobs.get(entry.id))
    ]
    places: dict[bytes | tuple[bytes, bytes], set[bytes]] = {}
    places.update((name, set(one.in_hand)) for name, one in node.limits.by_name.items())
    places.update((key, set(one.in_hand)) for key, one in node.limits.of_groups.in_use.items())
    return Memory(
        queued,
        {job.id for ones in node.recovery.asking.values() for job in ones} | machine.jobs.asking(),
        {job.id: int(job.taking.last_seen) for job in in_hand if job.taking is not None},
        {job.id: (int(job.qtime), job.flags & PAUSE) for job in jobs if job.flags & FLAG_PAUSED},
        {job.id: _counts(machine, job) for job in jobs},
        {one.id: (one.kind, one.result) for one in endings if one.until > now},
        places,
        {job.id for job in in_hand if job.flags & FLAG_HOLDS_GROUP},
        {queue.name: queue.paused for queue in node.queues.by_name.values() if queue.paused},
        {(entry.queue, entry.key): entry.id for entry in keys},
        {one.id: one.until for one in endings}
        | {job.id: job.etime * 1000 for job in jobs}
        | {(entry.queue, entry.key): entry.until for entry in keys},
    )


def _was_delivered(job: Job) -> bool:
    return job.flags & FLAG_DELIVERED != 0


def _is_spent(job: Job | None) -> bool:
    """Whether ``job`` is delivered at most once, and was."""
    return job is not None and not job.retry and _was_delivered(job)


def _is_in_hand(job: Job) -> bool:
    """Whether a client of its node has ``job``, which may come back."""
    delivered = job.flags & (FLAG_DELIVERED | FLAG_PAUSED) == FLAG_DELIVERED
    return delivered and job.state == ACTIVE and job.retry > 0 and job.taking is not None


def _counts(machine: "Machine", job: Job) -> tuple[int, int, dict[bytes, int], bytes]:
    trailer = machine.node.store.trailers.of(job)
    attempts = {} if trailer is None else dict(trailer.attempts)
    reason = b"" if trailer is None else trailer.reason
    return job.nacks, job.deliveries, attempts, reason


def compare(machine: "Machine", before: Memory, complain: Complain) -> None:
    """Check that ``machine``, which has just loaded its files, knows what it knew ``before`` it was
    stopped."""
    after = remember(machine)
    now = machine.now()
    over = {id for id, ends in before.ends.items() if ends <= now}
    over |= {id for id, (until, _) in before.pauses.items() if until <= now + ASKED_FIRST}
    index = machine.index
    for line, ids in before.queued.items():
        there = after.queued.get(line, [])
        known = set(there)
        for id in ids:
            if id not in known and id not in after.asking and id not in over:
                complain(f"node {index} has stopped with it queued in {line}, and not started", id)
        wanted = set(ids)
        if [id for id in there if id in wanted] != [id for id in ids if id in known]:
            complain(f"node {index} has started with {line} in another order", *ids)
    for what in ("in_hand", "pauses", "counts", "results", "stopped", "keys"):
        old, new = getattr(before, what), getattr(after, what)
        for id, value in old.items():
            if new.get(id) != value and id not in over:
                ids = [id] if isinstance(id, bytes) else []
                complain(
                    f"node {index} has stopped with {what} {id} {value}, and started with "
                    f"{new.get(id)}",
                    *ids,
                )
    for name, places in before.places.items():
        if lost := places - after.places.get(name, set()) - over:
            complain(f"node {index} has started without places of {name!r}", *sorted(lost))
    if lost := before.groups - after.groups - over:
        complain(f"node {index} has started without holding groups", *sorted(lost))
