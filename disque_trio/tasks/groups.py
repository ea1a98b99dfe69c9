"""Groups: jobs that belong together, and a last job that gets all their results.

A group is one job, whose body contains all the others. The worker that gets it adds the members and
hands the group back. From then on, the group is delivered now and then until all members have
ended. Each member leaves its result as a job of its own, a part, in a queue that belongs to this
group, because results of ACKJOB are only kept for a minute. Once all parts are there, the worker
adds the last job and acknowledges the group. Every job that is added has a key that follows from
the id of the group, so that nothing is added twice, whichever worker dies at whatever moment.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from disque_trio.client import Client, Job, ReplyError, tracing
from disque_trio.client.jobs import Letter
from disque_trio.respclient.values import Name
from disque_trio.tasks import traces
from disque_trio.tasks.core import Core, Later
from disque_trio.tasks.errors import BadJob
from disque_trio.tasks.handle import Handle, Handles, value_of
from disque_trio.tasks.messages import DAY, ERROR_TYPE, PART, RETRY, Result, Step, behind
from disque_trio.tasks.template import Bound, adder, step_of

R = TypeVar("R")
S = TypeVar("S")

PREFIX = "disque."
"""The prefix of names of internal tasks."""

GROUP = "disque.group"
_TYPE = "application/x-disque-group"

_INHERITED = ("priority", "ttl", "retry", "replicate")
"""Options that a group inherits from its last job."""

_MOST_IDS = 1000
_MOST_PARTS = 100
_SEVERAL = 8
_ASKING = 0.5
"""Seconds to wait for what becomes of members, after several visits in vain: a node that has
forgotten it, as after a restart, has to ask the others."""
_MISSING = 0.2
"""Seconds to wait for parts that may be on other nodes."""


def add_all(core: Core, members: Sequence[Bound[R]]) -> Handles[R]:
    """Add jobs one by one."""
    add = [adder(core, step_of(member), None) for member in members]

    async def run(client: Client) -> list[str]:
        return [await one(client) for one in add]

    return Handles(core, Later(core, run, f"adding {len(add)} jobs"))


def add(core: Core, members: Sequence[Bound[Any]], then: Bound[S]) -> Handle[S]:
    """Add a group. Raises ValueError if it has no members."""
    if not members:
        raise ValueError("a group needs members")
    last = step_of(then)
    body = _pack([], [*map(step_of, members), last])
    options = {name: last.options[name] for name in _INHERITED if name in last.options}
    step = Step(GROUP, last.queue, _TYPE, body, options)
    return Handle(core, Later(core, adder(core, step, None), "adding a group"))


def _pack(ids: list[str], steps: list[Step]) -> bytes:
    """Return a group's body: the ids of its members, if they were added, and all its steps."""
    chains = [[step, *step.then] for step in steps]
    encoded = [[step.encode() for step in chain] for chain in chains]
    head = {"ids": ids, "steps": [[len(step) for step in chain] for chain in encoded]}
    data = [step for chain in encoded for step in chain]
    return b"".join([json.dumps(head, separators=(",", ":")).encode(), b"\n", *data])


def _unpack(body: bytes) -> tuple[list[str], list[Step]]:
    """Read a body made by ``_pack``. Raises BadJob."""
    head, _, data = body.partition(b"\n")
    try:
        said = json.loads(head)
        ids: list[str] = said["ids"]
        steps = []
        for sizes in said["steps"]:
            chain = []
            for size in sizes:
                chain.append(Step.decode(data[:size]))
                data = data[size:]
            steps.append(replace(chain[0], then=tuple(chain[1:])))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise BadJob(f"bad group: {error!r}") from None
    return ids, steps


async def add_part(client: Client, part: str, result: Result, failed: str) -> None:
    """Add the result of a member of a group.

    Args:
        part: the member's ``part`` header.
        result: the result, or the error.
        failed: the id of the job if it failed, else empty.
    """
    queue, number, retry, replicate = part.rsplit(" ", 3)
    with tracing.unseen():
        await client.add(
            queue,
            result.encode(),
            headers={PART: number},
            retry=int(retry),
            replicate=int(replicate) or None,
            unique=f"{number} {failed}",
            unique_for=DAY,
        )


class _Held(Protocol):
    """The methods of ``HeldJob`` that a collection uses."""

    @property
    def id(self) -> str: ...
    @property
    def body(self) -> bytes: ...
    @property
    def nacks(self) -> int: ...
    @property
    def letter(self) -> Letter | None: ...

    async def ack(self, result: Name | None = None) -> None: ...
    async def nack(self, *, delay: float | None = None, reason: Name | None = None) -> None: ...
    async def dead(self, *, reason: Name | None = None) -> None: ...


class Collection:
    """A group that a worker is processing.

    Args:
        core: the core of the app.
        job: the job of the group.
    """

    def __init__(self, core: Core, job: _Held) -> None:
        self._core = core
        self._job = job
        # A dead letter that was sent back has a new id, but its parts are where they were.
        self._id = job.letter.first_id if job.letter is not None else job.id
        self._parts = f"group.{self._id}"

    async def visit(self) -> bool:
        """Check whether all members have ended. If so, add the last job and acknowledge the group;
        otherwise hand the group back for a while.

        Returns:
            Whether the group is done.

        Raises:
            BadJob: the group is invalid, or members failed.
            DisqueError: something could not be added or requested.
        """
        ids, steps = _unpack(self._job.body)
        *members, last = steps
        return await self._core.link.run(lambda client: self._visit(client, ids, members, last))

    async def _visit(self, client: Client, ids: list[str], members: list[Step], last: Step) -> bool:
        if not ids:
            ids = await self._add(client, members, await self._kept(client, last))
            await self._postpone()
            await self._note(client, _pack(ids, [*members, last]))
            return False
        seconds = _ASKING if self._job.nacks >= _SEVERAL else 0.001
        states = [
            outcome.state
            for first in range(0, len(ids), _MOST_IDS)
            for outcome in await client.wait(ids[first : first + _MOST_IDS], seconds)
        ]
        if "pending" in states:
            await self._postpone()
            return False
        parts = _Parts(client, self._parts)
        await parts.take(len(ids))
        ended: dict[int, str] = {}
        if self._job.letter is None:
            # Members that ended without a part: nobody adds one for a job that expires. If a group
            # was sent back, its members may have been sent back too, with other ids.
            ended = {n: state for n, state in enumerate(states) if state not in ("acked", "gone")}
        failed = {**ended, **parts.failed}
        failed = {n: why for n, why in failed.items() if n not in parts.values}
        if failed:
            await parts.put_back(failures=False)
            first = min(failed)
            raise BadJob(f"{len(failed)} of {len(ids)} failed, number {first + 1}: {failed[first]}")
        if len(parts.values) < len(ids):
            await parts.put_back(failures=True)
            await self._postpone()
            return False
        values = [value_of(parts.values[n], self._core.serializers) for n in range(len(ids))]
        serializer = self._core.serializers.of(last.content_type)
        step = behind(last, serializer, values, last.then)
        id = await step.add(client, traces.current(), key=f"then {self._id}", kept=DAY)
        await self._job.ack(Result(next=id).encode())
        await parts.ack()
        return True

    async def _kept(self, client: Client, last: Step) -> str:
        """Return retry time and number of copies for the parts: those of the last job or its
        queue."""
        retry = last.options.get("retry", RETRY)
        copies = last.options.get("replicate")
        if copies is None:
            policy = await client.policy(last.queue)
            copies = None if policy is None else policy.replicate
        return f"{retry} {copies or 0}"

    async def _add(self, client: Client, members: list[Step], kept: str) -> list[str]:
        """Add those members that are missing, and return the ids of all."""
        ids = []
        for number, step in enumerate(members):
            key = f"member {number} {self._id}"
            part = f"{self._parts} {number} {kept}"
            ids.append(await step.add(client, traces.current(), key=key, kept=DAY, part=part))
        return ids

    async def _note(self, client: Client, body: bytes) -> None:
        """Store the members' ids in the group, for the next worker that gets it. If that fails, the
        worker adds the members again, which adds nothing and returns their ids."""
        try:
            await client.update(self._job.id, body=body)
        except ReplyError:
            pass  # somebody already has it

    async def _postpone(self) -> None:
        if (processing := tracing.current()) is not None:
            processing.end("postponed")
        await self._job.nack(delay=min(10.0, 0.1 * 1.5 ** min(self._job.nacks, 20)))


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

    async def ack(self) -> None:
        """Acknowledge all parts."""
        jobs = self._values + self._failures
        await self._client.ack(*[job.id for job in jobs])
