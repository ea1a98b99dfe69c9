"""Finds the jobs of a queue that workers have."""

from dataclasses import dataclass, field
from typing import Final

from disque_console.io.calls import Answer, Calls
from disque_console.io.jobs import AT_ONCE, BODIES, STEP, Jobs, is_unknown
from disque_console.model.in_hand import JobInHand, read_held
from disque_trio.client.replies import page
from disque_trio.overview.names import to_bytes
from disque_trio.overview.nodes import Nodes
from disque_trio.respclient.errors import DisqueError

STEPS: Final = 10  # of a scan, on each node
MOST: Final = 200  # jobs to count on each node
SHOWN: Final = 50  # jobs


@dataclass(slots=True)
class JobsInHand:
    """Jobs that workers have.

    Attributes:
        held: the first ``SHOWN`` of them. count: how many were found.
        whole: whether all jobs of all nodes were scanned.
        problems: the nodes that did not answer, and why.
    """

    held: list[JobInHand] = field(default_factory=list)
    count: int = 0
    whole: bool = True
    problems: list[Answer] = field(default_factory=list)


async def find_held(calls: Calls, nodes: Nodes, queue: str, now: float) -> JobsInHand:
    """Look for the jobs of ``queue`` on the reachable nodes, at ``now`` (s since the epoch)."""
    hands = JobsInHand()
    ids: dict[str, list[str]] = {}
    for state in nodes.here():
        mine = ids[state.address] = []
        cursor = b"0"
        which: tuple[str, ...] = ("TAKEN",)
        for _ in range(STEPS):
            scan = ("JSCAN", cursor, "COUNT", STEP, "QUEUE", to_bytes(queue))
            reply = await calls.to(state.address, *scan, *which)
            if is_unknown(reply):
                which = ("STATE", "active")  # this also finds copies
                reply = await calls.to(state.address, *scan, *which)
            if isinstance(reply, DisqueError):
                hands.problems.append((state.address, reply))
                break
            cursor, found = page(reply)
            mine += [id.decode() for id in found if isinstance(id, bytes)]
            if cursor == b"0" or len(mine) >= MOST:
                break
        hands.whole = hands.whole and cursor == b"0"
    every = {id for mine in ids.values() for id in mine}
    hands.count = len(every)
    few = set(sorted(every)[:SHOWN])
    shown = await _show(
        Jobs(calls, nodes), {address: few.intersection(ids[address]) for address in ids}
    )
    hands.held = read_held(shown, now)
    return hands


async def _show(jobs: Jobs, ids: dict[str, set[str]]) -> list[Answer]:
    """What nodes tell about jobs: arrays of replies to SHOW."""
    shown: list[Answer] = []
    size = 0
    for address, mine in ids.items():
        wanted = sorted(mine)
        for begin in range(0, len(wanted), AT_ONCE):
            if size > BODIES:
                break
            answers = await jobs.show(address, wanted[begin : begin + AT_ONCE])
            found = [answer for answer in answers if isinstance(answer, list)]
            size += sum(len(value) for job in found for value in job if isinstance(value, bytes))
            shown.append((address, list(found)))
    return shown
