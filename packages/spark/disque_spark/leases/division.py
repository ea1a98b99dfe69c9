"""Divides a batch among nodes and tasks. Pure functions."""

from collections.abc import Mapping, Sequence

from disque_spark.leases.store import PartitionPlan


def divide(
    lengths: Mapping[str, int],
    limit: int,
    per_node: int = 1,
    least: int = 1,
    size: int = 0,
    turn: int = 0,
) -> list[PartitionPlan]:
    """The plans of a batch of ``limit`` jobs, taken from nodes in proportion to the jobs they have.

    Args:
        lengths: number of jobs on each node.
        per_node: tasks per node, but no more than jobs.
        least: the fewest tasks in total, if there are as many jobs; nodes with more jobs get more.
        size: total size of bodies in bytes; 0: no limit.
        turn: see ``shares``.
    """
    own = shares(lengths, limit, turn)
    jobs = sum(own.values())
    return [
        PartitionPlan(address, part, max(size * part // jobs, 1) if size else 0)
        for address, share in own.items()
        for part in divided(share, min(max(per_node, -(-least * share // jobs)), max(share, 1)))
        if part
    ]


def shares(lengths: Mapping[str, int], limit: int, turn: int) -> dict[str, int]:
    """Divide ``limit`` jobs among the nodes that have jobs.

    Args:
        lengths: number of jobs on each node.
        limit: at least 1.
        turn: number of the batch. The remainder of the division goes to nodes in turn, first to
            those that would get nothing. So all nodes are visited eventually, however long the
            queue of one of them is.
    """
    have = {address: length for address, length in lengths.items() if length}
    total = sum(have.values())
    if limit >= total:
        # There may be more jobs by now.
        return {address: n + (limit - total) // len(have) for address, n in have.items()}
    found = {address: limit * length // total for address, length in have.items()}
    addresses = list(have)
    at = turn % len(addresses)
    in_turn = sorted(addresses[at:] + addresses[:at], key=lambda address: found[address] > 0)
    for address in in_turn[: limit - sum(found.values())]:
        found[address] += 1
    return found


def divide_all(
    addresses: Sequence[str], per_node: int = 1, least: int = 1, size: int = 0
) -> list[PartitionPlan]:
    """The plans of a batch of all jobs that there are; see ``divide``."""
    parts = max(per_node, -(-least // max(len(addresses), 1)))
    own = max(size // max(len(addresses) * parts, 1), 1) if size else 0
    return [PartitionPlan(address, 0, own) for address in addresses for _ in range(parts)]


def divided(total: int, parts: int) -> list[int]:
    """``total`` as a sum of ``parts`` numbers that differ by at most 1."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def taken_in_turn(lengths: Mapping[str, int], limit: int) -> dict[str, int]:
    """How many jobs of each queue a node delivers when asked for ``limit`` jobs (0: all) of several
    queues: one of each in turn, as long as the queue has any."""
    taken = dict.fromkeys(lengths, 0)
    left = limit or sum(lengths.values())
    open_ = [name for name, length in lengths.items() if length > 0]
    while left and open_:
        each = min(min(lengths[name] - taken[name] for name in open_), left // len(open_))
        if not each:
            for name in open_[:left]:
                taken[name] += 1
            break
        for name in open_:
            taken[name] += each
        left -= each * len(open_)
        open_ = [name for name in open_ if taken[name] < lengths[name]]
    return taken
