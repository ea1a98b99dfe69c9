"""Jobs that have fewer copies than they should, on all nodes: counts them, and makes the copies."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Final

import trio

from disque_trio.cli.subcommands.progress import Meter
from disque_trio.cli.subcommands.reach import Member
from disque_trio.cli.subcommands.scanning import pages
from disque_trio.overview.names import to_bytes
from disque_trio.resp.command import Argument
from disque_trio.respclient.values import elements, integer, text

BATCH: Final = 200
"""Jobs for one request: it is answered when their copies are confirmed."""
STEP: Final = 1_500
"""Jobs that a node visits for one reply: its maximum."""


def conditions(queues: Sequence[str]) -> list[Argument]:
    """The conditions of JSCAN for such jobs of ``queues`` (empty: of all)."""
    found: list[Argument] = ["FEWCOPIES"]
    for queue in queues:
        found += ["QUEUE", to_bytes(queue)]
    return found


async def counts(members: Sequence[Member], queues: Sequence[str]) -> Counter[str]:
    """How many jobs of ``queues`` (empty: of all) have too few copies, by queue. Raises
    DisqueError."""
    found: Counter[str] = Counter()
    for member in members:
        async for page in pages(member, STEP, [*conditions(queues), "REPLY", "counts"]):
            for entry in page:
                queue, number = elements(entry, 2)
                found[text(queue)] += integer(number)
    return found


async def make(
    members: Sequence[Member], queues: Sequence[str], seconds: float, progress: Meter
) -> None:
    """Make the copies that jobs of ``queues`` lack, on all nodes at once. ``seconds``: how long to
    wait for those of one request. Raises DisqueError."""

    async def on(member: Member) -> None:
        async for ids in _batches(member, queues):
            progress.add(integer(await member.ask("COPYJOB", round(seconds * 1000), *ids)))

    async with trio.open_nursery() as nursery:
        for member in members:
            nursery.start_soon(on, member)


async def _batches(member: Member, queues: Sequence[str]) -> AsyncIterator[list[str]]:
    """The ids of the jobs with too few copies that a node sees to."""
    ids: list[str] = []
    async for page in pages(member, STEP, conditions(queues)):
        ids += [text(id) for id in page]
        while len(ids) >= BATCH:
            yield ids[:BATCH]
            del ids[:BATCH]
    if ids:
        yield ids
