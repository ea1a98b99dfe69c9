"""Walks over the jobs of nodes, with what they tell of each."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from disque_trio.cli.subcommands.reach import Member
from disque_trio.client import replies
from disque_trio.client.shown import ShownJob, jobs_in
from disque_trio.resp.command import Argument

STEP: Final = 500
"""Jobs that a node visits for one reply that tells of them: its maximum."""


async def shown_jobs(
    member: Member, conditions: Sequence[Argument], most_body: int | None, step: int = STEP
) -> AsyncIterator[list[ShownJob]]:
    """The jobs of a node that meet ``conditions`` of JSCAN, a reply at a time. ``most_body``: bytes
    of their bodies; None: all. Raises DisqueError."""
    limit: tuple[Argument, ...] = () if most_body is None else ("MAXBODY", most_body)
    cursor = b"0"
    while True:
        reply = await member.ask(
            "JSCAN", cursor, "COUNT", step, *conditions, "REPLY", "all", "CLIENT", *limit
        )
        cursor, page = replies.page(reply)
        yield jobs_in(page)
        if cursor == b"0":
            return
