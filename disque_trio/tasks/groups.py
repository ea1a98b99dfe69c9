"""Groups: jobs that belong together, and what follows when all of them have ended.

A group is one job, whose body contains all the others. The worker that gets it adds the members and
hands the group back. From then on, the group is delivered now and then until all members have
ended. Each member leaves its result as a job of its own, a part, in a queue that belongs to this
group, because results of ACKJOB are only kept for a minute. Once all parts are there, the list of
results is the result of the group, as if a task had returned it. Every job that is added has a key
that follows from the id of the group, so that nothing is added twice, whichever worker dies at
whatever moment; but a part is, if nodes cannot tell whether it was added.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from disque_trio.client import Client, Job, NoUniqueError, ReplyError, tracing
from disque_trio.client.job import Letter
from disque_trio.respclient.values import Name
from disque_trio.tasks import traces
from disque_trio.tasks.core import Core
from disque_trio.tasks.errors import MembersFailed
from disque_trio.tasks.handle import value_of
from disque_trio.tasks.looking import AT_ONCE, last_of
from disque_trio.tasks.members import GROUP, Members, as_told, behind
from disque_trio.tasks.messages import DAY, ERROR_TYPE, PART, Result, Step

_MOST_PARTS = 100
_SEVERAL = 8
_ASKING = 0.5
"""Seconds to wait for what becomes of members, after several visits in vain: a node that has
forgotten it, as after a restart, has to ask the others."""
_MISSING = 0.2
"""Seconds to wait for parts that may be on other nodes."""


async def add_part(client: Client, part: str, result: Result, failed: str) -> None:
    """Add the result of a member of a group.

    Args:
        part: the member's ``part`` header.
        result: the result, or the error.
        failed: the id of the job if it failed, else empty.
    """
    queue, number, retry, replicate = part.rsplit(" ", 3)
    add = partial(
        client.add,
        queue,
        result.encode(),
        headers={PART: number},
        retry=int(retry),
        replicate=int(replicate) or None,
    )
    with tracing.unseen():
        try:
            await add(unique=f"{number} {failed}", unique_for=DAY)
        except NoUniqueError:
            # One may have been added, but it ends with its group, which waits for this member. The
            # group needs one, and further ones do no harm.
            await add()


class _Held(Protocol):
    """The methods of ``HeldJob`` that a collection uses."""

    @property
    def id(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def body(self) -> bytes: ...
    @property
    def nacks(self) -> int: ...
    @property
    def letter(self) -> Letter | None: ...

    async def nack(self, *, delay: float | None = None, reason: Name | None = None) -> None: ...
    async def update(self, *, body: Name) -> None: ...


@dataclass(frozen=True, slots=True)
class Collected:
    """What came of a group whose members have ended.

    Attributes:
        id: the id of the group, from which keys of what follows are made.
        values: the results of the members, without those that failed.
        members: see ``Result``.
        content_type: the format for the values.
        parts: the ids of the parts, to be acknowledged after the group.
    """

    id: str
    values: list[Any]
    members: str
    content_type: str
    parts: list[str]


class Collection:
    """A group that a worker is processing.

    Args:
        core: the core of the app.
        job: the job of the group.
        body: its body, without steps that follow.
    """

    def __init__(self, core: Core, job: _Held, body: bytes) -> None:
        self._core = core
        self._job = job
        self._body = body
        # A dead letter that was sent back has a new id, but its parts are where they were.
        self._id = job.letter.first_id if job.letter is not None else job.id
        self._parts = f"group.{self._id}"

    async def visit(self) -> Collected | None:
        """Check whether all members have ended. If so, return what came of them; otherwise hand the
        group back for a while.

        Raises:
            MembersFailed: members failed.
            BadJob: the group is invalid.
            DisqueError: something could not be added or requested.
        """
        members = Members.decode(self._body)
        return await self._core.link.run(lambda client: self._visit(client, members))

    async def _visit(self, client: Client, members: Members) -> Collected | None:
        noted = members
        if not members.ids:
            members = replace(members, ids=tuple(await self._add(client, members)))
            if not self._job.nacks:
                await self._postpone()
                await self._note(members)
                return None
        seconds = _ASKING if self._job.nacks >= _SEVERAL else AT_ONCE
        outcomes = await last_of(client, members.ids, seconds)
        ended: dict[int, str] = {}
        if self._job.letter is None:
            # Members that ended without a part: nobody adds one for a job that expires. If a group
            # was sent back, its members may have been sent back too, with other ids.
            ended = {n: one.state for n, one in enumerate(outcomes) if one.state not in _GOES_ON}
        known = members.failed | ended.keys()
        if known - members.failed and members.on_death is not None:
            await self._tell(client, members, members.on_death, "death", ended)
        if any(one.state == "pending" for one in outcomes):
            await self._postpone()
            members = replace(members, ids=tuple(one.id for one in outcomes), failed=known)
            if members != noted:
                await self._note(members)
            return None
        return await self._collect(client, members, ended)

    async def _collect(
        self, client: Client, members: Members, ended: dict[int, str]
    ) -> Collected | None:
        """Collect the parts of members that have all ended."""
        total = len(members.packed)
        parts = _Parts(client, self._parts)
        await parts.take(total)
        failed = {**ended, **parts.failed}
        failed = {n: why for n, why in failed.items() if n not in parts.values}
        if len(parts.values.keys() | failed.keys()) < total and not (
            failed and not members.skip_failed
        ):
            await parts.put_back(failures=True)
            await self._postpone()
            return None
        if members.on_complete is not None:
            await self._tell(client, members, members.on_complete, "complete", failed)
        if failed and members.on_death is not None:
            await self._tell(client, members, members.on_death, "death", failed)
        if failed and not members.skip_failed:
            await parts.put_back(failures=False)
            raise MembersFailed(failed, total)
        values = [value_of(parts.values[n], self._core.serializers) for n in sorted(parts.values)]
        about = ":".join([str(total), ",".join(map(str, sorted(failed)))])
        return Collected(self._id, values, about, members.content_type, parts.ids)

    async def _tell(
        self, client: Client, members: Members, step: Step, what: str, failed: Mapping[int, str]
    ) -> None:
        """Add a job that is told how the members ended, as far as is known."""
        about = {"id": self._id, "task": GROUP, **as_told(failed, len(members.packed))}
        told = behind(self._core, step, about)
        await told.add(client, traces.current(), key=f"{what} {self._id}", kept=DAY)

    async def _add(self, client: Client, members: Members) -> list[str]:
        """Add those members that are missing, and return the ids of all."""
        copies = members.replicate
        if copies is None:
            policy = await client.policy(self._job.queue)
            copies = None if policy is None else policy.replicate
        ids = []
        for number, step in enumerate(members.steps(self._core)):
            key = f"member {number} {self._id}"
            part = f"{self._parts} {number} {members.retry} {copies or 0}"
            ids.append(await step.add(client, traces.current(), key=key, kept=DAY, part=part))
        return ids

    async def _note(self, members: Members) -> None:
        """Store what is known of the members in the group, for the next worker that gets it. If
        that fails, it adds the members again, which adds nothing and returns their ids."""
        # The steps that follow may be at the end of the job's body.
        body = members.encode() + self._job.body[len(self._body) :]
        try:
            await self._job.update(body=body)
        except ReplyError:
            pass  # somebody already has it

    async def _postpone(self) -> None:
        if (processing := tracing.current()) is not None:
            processing.end("postponed")
        await self._job.nack(delay=pause_after(self._job.nacks))


def pause_after(nacks: int) -> float:
    """Return how long a group pauses that was given back so often, s."""
    return min(10.0, 0.1 * 1.5 ** min(nacks, 20))


_GOES_ON = frozenset({"pending", "acked", "gone"})
"""States of members that may have, or leave, a part."""


class _Parts:
    """The parts of a group that this worker has taken.

    Args:
        queue: the queue of the parts.

    Attributes:
        values: the results, by the numbers of their members.
        failed: the errors, by the numbers of their members.
    """

    def __init__(self, client: Client, queue: str) -> None:
        self._client = client
        self._queue = queue
        self._values: list[Job] = []
        self._failures: list[Job] = []
        self.values: dict[int, Result] = {}
        self.failed: dict[int, str] = {}

    async def take(self, wanted: int) -> None:
        """Take all parts, waiting a moment for those that are missing."""
        while len(self.values.keys() | self.failed.keys()) < wanted:
            with tracing.unseen():
                jobs = await self._client.get(
                    self._queue, count=_MOST_PARTS, timeout=_MISSING, withheaders=True
                )
            if not jobs:
                return
            for job in jobs:
                self._sort(job)

    def _sort(self, job: Job) -> None:
        result = Result.decode(job.body)
        number = int(job.headers.get(PART, b"-1"))
        if result.content_type == ERROR_TYPE:
            self._failures.append(job)
            self.failed[number] = result.data.decode("utf-8", "replace")
        else:
            self._values.append(job)
            self.values[number] = result

    async def put_back(self, *, failures: bool) -> None:
        """Give parts back for the next visit; acknowledge failures instead, unless ``failures``."""
        back = self._values + (self._failures if failures else [])
        if back:
            await self._client.nack(*[job.id for job in back], delay=0)
        if self._failures and not failures:
            await self._client.ack(*[job.id for job in self._failures])

    @property
    def ids(self) -> list[str]:
        """The ids of all parts."""
        return [job.id for job in self._values + self._failures]
