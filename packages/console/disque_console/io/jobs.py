"""Finds jobs: page by page with the nodes' cursors, or one job on all nodes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

import trio

from disque_console.io.calls import Answer, Calls
from disque_console.model.job_rows import READ
from disque_console.model.job_scans import JobFilter, Place
from disque_console.model.jobs import SHOWN, JobCopy, JobView, merge, read_copy
from disque_console.model.letters import JobCopyAt
from disque_trio.client import replies
from disque_trio.client.replies import Outcome
from disque_trio.overview.names import to_bytes
from disque_trio.overview.nodes import Nodes
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import DisqueError, ProtocolError, ReplyError

PAGE: Final = 50  # jobs
STEP: Final = 1_500  # jobs that a node visits for one JSCAN: the maximum
VISITED: Final = 30_000  # jobs visited for a page
AT_ONCE: Final = 10  # SHOW commands sent together
LETTERS: Final = 200  # jobs of a queue, on each node
PATIENCE: Final = 200  # ms to wait for nodes that may know how a job ended
LIGHT: Final = 16 << 10  # bytes: read fewer jobs if they are larger on average
BODIES: Final = 8 << 20  # bytes of bodies for a page: nodes of older releases always send them


@dataclass(frozen=True, slots=True)
class Extent:
    """How much to do for a page.

    Attributes:
        jobs: about how many to list.
        visited: how many the nodes may visit at most. seconds: how long that may take.
        body: bytes of each body to read.
        bodies: bytes of bodies to read together, which nodes of older releases send as a whole.
    """

    jobs: int = PAGE
    visited: int = VISITED
    seconds: float = 0.2
    body: int = READ
    bodies: int = BODIES


@dataclass(slots=True)
class Found:
    """A job on a page. address: of the node that listed it. copy: None if not read, or gone."""

    id: str
    address: str
    copy: JobCopy | None = None


@dataclass(slots=True)
class JobPage:
    """A page of jobs.

    Attributes:
        visited: how many jobs the nodes have scanned, or a few more.
        next: where the next page begins; None if there is none.
        untold: how many were not read, because the bodies before them were large.
        problems: the nodes that did not answer, and why.
    """

    jobs: list[Found] = field(default_factory=list)
    visited: int = 0
    next: Place | None = None
    untold: int = 0
    problems: list[Answer] = field(default_factory=list)


class Jobs:
    """Looks for jobs on the reachable nodes."""

    def __init__(self, calls: Calls, nodes: Nodes) -> None:
        self._calls = calls
        self._nodes = nodes

    async def page(
        self,
        wanted: JobFilter,
        place: Place,
        extent: Extent = Extent(),
    ) -> JobPage:
        """Jobs from ``place``, as many as ``extent`` says, or fewer if the scan takes too long."""
        page = JobPage()
        seen: set[str] = set()
        size = extent.jobs
        until = trio.current_time() + extent.seconds
        states = sorted(self._nodes.here(), key=lambda state: state.id)
        for state in [state for state in states if state.id >= place.node]:
            cursor = place.cursor if state.id == place.node else "0"
            count = size
            while True:
                full = len(seen) >= size or page.visited >= extent.visited
                if full or (page.visited and trio.current_time() > until):
                    page.next = Place(state.id, cursor)
                    await self.tell(page, extent.body, extent.bodies)
                    return page
                reply = await self._calls.to(
                    state.address, "JSCAN", cursor, "COUNT", count, *wanted.words
                )
                try:
                    following, ids = read_page(reply, wanted)
                except DisqueError as error:
                    page.problems.append((state.address, error))
                    break
                if len(ids) > size and count > size:
                    count = size  # too many at once: use small steps
                    continue
                page.visited += min(count, state.number("registered_jobs") or count)
                page.jobs += [Found(id, state.address) for id in ids if id not in seen]
                seen.update(ids)
                cursor = following
                if cursor == "0":
                    break
                if len(ids) * 4 < size:
                    count = min(STEP, count * 4)
        await self.tell(page, extent.body, extent.bodies)
        return page

    async def tell(self, page: JobPage, most: int = 0, bodies: int = BODIES) -> None:
        """Read the jobs of a page, with up to ``most`` bytes of the body of each, until they have
        more than ``bodies`` bytes together."""
        spent = 0
        for part in _parts(page.jobs):
            if spent > bodies:
                page.untold += len(part)
                continue
            address = part[0].address
            answers = await self.show(address, [found.id for found in part], most)
            for found, reply in zip(part, answers, strict=True):
                found.copy = read_copy(reply)
                spent += len(found.copy.body) if found.copy else 0

    async def show(self, address: str, ids: Sequence[str], most: int = 0) -> list[Reply]:
        """A node's replies to SHOW: with the client that has the job, and without the rest of a
        body of more than ``most`` bytes, as far as the node knows these options."""
        answers: list[Reply] = []
        for options in (("CLIENT", "MAXBODY", most), ("CLIENT",), ()):
            answers = await self._calls.many(address, [("SHOW", id, *options) for id in ids])
            if not any(map(is_unknown, answers)):
                break
        return answers

    async def letters(self, queue: str) -> tuple[list[JobCopyAt], list[Answer]]:
        """The first jobs of a queue on each node, up to ``LETTERS``, fewer if bodies are large, and
        the errors of nodes that did not answer."""
        name = to_bytes(queue)
        page = JobPage()

        async def look(address: str) -> None:
            reply = await self._calls.to(address, "QPEEK", name, LETTERS, "MAXBODY", 0)
            if is_unknown(reply):
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
        """A job as all nodes see it, with as much of its body as pages show, and the errors of
        nodes that did not answer."""
        answers: dict[str, Reply] = {}

        async def ask(address: str) -> None:
            [answers[address]] = await self.show(address, [id], SHOWN)

        ids = {state.address: state.id for state in self._nodes.here()}
        async with trio.open_nursery() as nursery:
            for address in ids:
                nursery.start_soon(ask, address)
        sorted_answers = sorted(answers.items(), key=itemgetter(0))
        problems = [answer for answer in sorted_answers if isinstance(answer[1], DisqueError)]
        return merge(sorted_answers, ids), problems

    async def outcome(self, id: str) -> Outcome | None:
        """How a job ended, as far as the nodes remember; None if they do not, or may not say."""
        found = (await self.outcomes([id])).get(id)
        return None if found is None or found.state in ("gone", "pending") else found

    async def outcomes(self, ids: Sequence[str]) -> dict[str, Outcome]:
        """What became of jobs, by id, as far as the nodes remember; empty if they may not say."""
        if not ids:
            return {}
        _, reply = await self._calls.any("WAITJOB", PATIENCE, *ids)
        try:
            if isinstance(reply, DisqueError):
                raise reply
            return {found.id: found for found in replies.outcomes(reply)}
        except DisqueError:
            return {}

    async def body(self, id: str) -> bytes | None:
        """The whole body of a job; None if no node that answers has it."""
        job, _ = await self.one(id)
        copy = read_copy(await self._calls.to(job.holder, "SHOW", id)) if job else None
        return copy.body if copy else None


def is_unknown(reply: Reply) -> bool:
    """Whether a node, of an older release or C Disque, does not know an option."""
    return isinstance(reply, ReplyError) and reply.code == "ERR"


def _size(reply: Reply) -> int:
    """The total size of the bodies in a QPEEK reply; 0 for an error."""
    if isinstance(reply, DisqueError):
        return 0
    return sum(len(job.body) for job in replies.jobs(reply))


def read_page(reply: Reply, wanted: JobFilter) -> tuple[str, list[str]]:
    """Read a JSCAN reply: the next cursor, and the ids of wanted jobs. Raises DisqueError."""
    if isinstance(reply, DisqueError):
        raise reply
    if not isinstance(reply, list):
        raise ProtocolError("not a reply to JSCAN")
    cursor, found = replies.page(reply)
    ids = [id.decode() for id in found if isinstance(id, bytes)]
    return cursor.decode(), [id for id in ids if wanted.takes(id)]


def _parts(jobs: Iterable[Found]) -> list[list[Found]]:
    """The jobs of each node, in small batches."""
    parts: list[list[Found]] = []
    for found in jobs:
        last = parts[-1] if parts else []
        if last and last[0].address == found.address and len(last) < AT_ONCE:
            last.append(found)
        else:
            parts.append([found])
    return parts
