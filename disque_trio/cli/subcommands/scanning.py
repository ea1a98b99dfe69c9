"""Walks over the jobs of nodes."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from disque_trio.cli.subcommands.reach import Member
from disque_trio.client import replies
from disque_trio.client.shown import ShownJob, jobs_in
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Reply

STEP: Final = 500
"""Jobs that a node visits for one reply that tells of them: its maximum."""


async def pages(member: Member, step: int, words: Sequence[Argument]) -> AsyncIterator[list[Reply]]:
    """The elements of the replies of a node to JSCAN with ``words``. ``step``: jobs to visit for
    one reply. Raises DisqueError."""
    cursor = b"0"
    while True:
        cursor, page = replies.page(await member.ask("JSCAN", cursor, "COUNT", step, *words))
        yield page
        if cursor == b"0":
            return


async def shown_jobs(
    member: Member, conditions: Sequence[Argument], most_body: int | None, step: int = STEP
) -> AsyncIterator[list[ShownJob]]:
    """The jobs of a node that meet ``conditions`` of JSCAN, a reply at a time. ``most_body``: bytes
    of their bodies; None: all. Raises DisqueError."""
    limit: tuple[Argument, ...] = () if most_body is None else ("MAXBODY", most_body)
    async for page in pages(member, step, [*conditions, "REPLY", "all", "CLIENT", *limit]):
        yield jobs_in(page)
