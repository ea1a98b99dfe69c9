"""Jobs that have fewer copies than they should, on all nodes: counts them, and makes the copies."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Final

import trio

from disque_trio.cli.subcommands.progress import Meter
from disque_trio.cli.subcommands.reach import Member
from disque_trio.client import replies
from disque_trio.overview.names import to_bytes
from disque_trio.resp.command import Argument
from disque_trio.respclient.values import elements, integer, text

BATCH: Final = 200
"""Jobs for one request: it is answered when their copies are confirmed."""
STEP: Final = 1_500
"""Jobs that a node visits for one reply: its maximum."""


def _conditions(queues: Sequence[str]) -> list[Argument]:
    found: list[Argument] = ["FEWCOPIES"]
    for queue in queues:
        found += ["QUEUE", to_bytes(queue)]
    return found


async def counts(members: Sequence[Member], queues: Sequence[str]) -> Counter[str]:
    """How many jobs of ``queues`` (empty: of all) have too few copies, by queue. Raises
    DisqueError."""
    found: Counter[str] = Counter()
    for member in members:
        cursor = b"0"
        while True:
            words = _conditions(queues)
            reply = await member.ask("JSCAN", cursor, "COUNT", STEP, *words, "REPLY", "counts")
            cursor, page = replies.page(reply)
            for entry in page:
                queue, number = elements(entry, 2)
                found[text(queue)] += integer(number)
            if cursor == b"0":
                break
    return found


async def make(
    members: Sequence[Member], queues: Sequence[str], seconds: float, progress: Meter
) -> int:
    """Make the copies that jobs of ``queues`` lack, on all nodes at once. ``seconds``: how long to
    wait for those of one request. Returns how many jobs have all theirs. Raises DisqueError."""
    done = 0

    async def on(member: Member) -> None:
        nonlocal done
        async for ids in _batches(member, queues):
            number = integer(await member.ask("COPYJOB", round(seconds * 1000), *ids))
            done += number
            progress.add(number)

    async with trio.open_nursery() as nursery:
        for member in members:
            nursery.start_soon(on, member)
    return done


async def _batches(member: Member, queues: Sequence[str]) -> AsyncIterator[list[str]]:
    """The ids of the jobs with too few copies that a node sees to."""
    ids: list[str] = []
    cursor = b"0"
    while True:
        reply = await member.ask("JSCAN", cursor, "COUNT", STEP, *_conditions(queues))
        cursor, page = replies.page(reply)
        ids += [text(id) for id in page]
        while len(ids) >= BATCH or (ids and cursor == b"0"):
            yield ids[:BATCH]
            del ids[:BATCH]
        if cursor == b"0":
            return
