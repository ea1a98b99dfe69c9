"""Finds jobs: a page at a time by the cursors of the nodes, or one of them everywhere."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from disque_trio.client import replies
from disque_trio.console.io.calls import Answer, Calls
from disque_trio.console.model.job_scans import JobFilter, Place
from disque_trio.console.model.jobs import JobCopy, JobView, merge, read_copy
from disque_trio.console.model.letters import JobCopyAt
from disque_trio.console.model.names import to_bytes
from disque_trio.console.model.nodes import Nodes
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import DisqueError, ProtocolError

PAGE: Final = 50  # jobs
STEP: Final = 1_500  # jobs that a node visits for one JSCAN: its most
VISITED: Final = 30_000  # jobs for a page
SECONDS: Final = 0.2  # for a page
AT_ONCE: Final = 10  # SHOWs that are sent together
LETTERS: Final = 200  # jobs of a queue, of each node
LIGHT: Final = 16 << 10  # bytes: of jobs that are larger on the average few are looked at
BODIES: Final = 8 << 20  # bytes of bodies for a page: SHOW always has them


@dataclass(slots=True)
class Found:
    """A job of a page. address: of the node that told of it. copy: None: not asked, or gone."""

    id: str
    address: str
    copy: JobCopy | None = None


@dataclass(slots=True)
class JobPage:
    """Jobs that were found.

    Attributes:
        visited: how many jobs nodes have looked at, or a few more.
        next: where to go on; None: there are no more.
        untold: how many were not asked about, as the bodies before them were large.
        problems: nodes that did not answer, and why.
    """

    jobs: list[Found] = field(default_factory=list)
    visited: int = 0
    next: Place | None = None
    untold: int = 0
    problems: list[Answer] = field(default_factory=list)


class Jobs:
    """Looks for jobs on the nodes that are here."""

    def __init__(self, calls: Calls, nodes: Nodes) -> None:
        self._calls = calls
        self._nodes = nodes

    async def page(self, wanted: JobFilter, place: Place, size: int = PAGE) -> JobPage:
        """Jobs from ``place`` on: some ``size``, or fewer where many have to be visited."""
        page = JobPage()
        seen: set[str] = set()
        until = trio.current_time() + SECONDS
        states = sorted(self._nodes.here(), key=lambda state: state.id)
        for state in [state for state in states if state.id >= place.node]:
            cursor = place.cursor if state.id == place.node else "0"
            count = size
            while True:
                full = len(seen) >= size or page.visited >= VISITED
                if full or (page.visited and trio.current_time() > until):
                    page.next = Place(state.id, cursor)
                    await self.tell(page)
                    return page
                reply = await self._calls.to(
                    state.address, "JSCAN", cursor, "COUNT", count, *wanted.words
                )
                try:
                    following, ids = _page(reply)
                except DisqueError as error:
                    page.problems.append((state.address, error))
                    break
                if len(ids) > size and count > size:
                    count = size  # too many at once: rather in small steps
                    continue
                page.visited += min(count, state.number("registered_jobs") or count)
                page.jobs += [Found(id, state.address) for id in ids if id not in seen]
                seen.update(ids)
                cursor = following
                if cursor == "0":
                    break
                if len(ids) * 4 < size:
                    count = min(STEP, count * 4)
        await self.tell(page)
        return page

    async def tell(self, page: JobPage) -> None:
        """Ask what the jobs of a page are."""
        spent = 0
        for part in _parts(page.jobs):
            if spent > BODIES:
                page.untold += len(part)
                continue
            address = part[0].address
            answers = await self._calls.many(address, [("SHOW", found.id) for found in part])
            for found, reply in zip(part, answers, strict=True):
                found.copy = read_copy(reply)
                spent += len(found.copy.body) if found.copy else 0

    async def letters(self, queue: str) -> tuple[list[JobCopyAt], list[Answer]]:
        """The first jobs of a queue of each node, up to ``LETTERS``, fewer where bodies are large.
        Returns the errors of nodes that did not answer, too."""
        name = to_bytes(queue)
        page = JobPage()

        async def look(address: str) -> None:
            reply = await self._calls.to(address, "QPEEK", name, AT_ONCE)
            if _size(reply) <= LIGHT * AT_ONCE:
                reply = await self._calls.to(address, "QPEEK", name, LETTERS)
            if isinstance(reply, DisqueError):
                page.problems.append((address, reply))
            else:
                page.jobs += [Found(job.id, address) for job in replies.jobs(reply)]

        async with trio.open_nursery() as nursery:
            for state in self._nodes.here():
                nursery.start_soon(look, state.address)
        await self.tell(page)
        there = [
            JobCopyAt(found.address, found.copy)
            for found in page.jobs
            if found.copy is not None and found.copy.queue == queue
        ]
        return there, page.problems

    async def one(self, id: str) -> tuple[JobView | None, Sequence[Answer]]:
        """What all nodes say of a job. Returns the errors of those that did not answer, too."""
        answers = await self._calls.every("SHOW", id)
        ids = {state.address: state.id for state in self._nodes.here()}
        problems = [answer for answer in answers if isinstance(answer[1], DisqueError)]
        return merge(answers, ids), problems


def _size(reply: Reply) -> int:
    """The bytes of the bodies of what QPEEK said; 0 of an error."""
    if isinstance(reply, DisqueError):
        return 0
    return sum(len(job.body) for job in replies.jobs(reply))


def _page(reply: Reply) -> tuple[str, list[str]]:
    """Raises DisqueError."""
    if isinstance(reply, DisqueError):
        raise reply
    if not isinstance(reply, list):
        raise ProtocolError("no answer to JSCAN")
    cursor, found = replies.page(reply)
    return cursor.decode(), [id.decode() for id in found if isinstance(id, bytes)]


def _parts(jobs: Iterable[Found]) -> list[list[Found]]:
    """Jobs of the same node together, a few at a time."""
    parts: list[list[Found]] = []
    for found in jobs:
        last = parts[-1] if parts else []
        if last and last[0].address == found.address and len(last) < AT_ONCE:
            last.append(found)
        else:
            parts.append([found])
    return parts
