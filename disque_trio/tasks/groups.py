"""Groups: jobs that belong together, and one behind them that gets all their results.

A group is one job, whose body has all the others. Whoever gets it adds the members, hands it back,
and looks again now and then until all have ended. A member leaves its result as a job of its own, a
part, in a queue that only this group has: results of ACKJOB are kept for a minute only. When all
parts are there the one behind them is added, and the group acknowledged. All that is added has a
key that follows from the id of the group, so that none of it is doubled, whoever dies when.
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
from disque_trio.tasks.messages import DAY, ERROR_TYPE, PART, Result, Step, behind
from disque_trio.tasks.template import Bound, adder, step_of

R = TypeVar("R")
S = TypeVar("S")

PREFIX = "disque."
"""Begins the names of tasks of our own."""

GROUP = "disque.group"
_TYPE = "application/x-disque-group"

_INHERITED = ("priority", "ttl", "retry", "replicate")
"""Options that a group has from what comes behind it."""

_MOST_IDS = 1000
_MOST_PARTS = 100
_PART_RETRY = 30
"""Seconds after which parts come again that a worker, or a node, had when it died, unless what
comes behind the group has a retry time of its own."""
_MISSING = 0.2
"""Seconds to wait for parts that may be on other nodes."""


def add_all(core: Core, members: Sequence[Bound[R]]) -> Handles[R]:
    """Add jobs one by one."""
    add = [adder(core, step_of(member), None) for member in members]

    async def run(client: Client) -> list[str]:
        return [await one(client) for one in add]

    return Handles(core, Later(core, run, f"adding {len(add)} jobs"))


def add(core: Core, members: Sequence[Bound[Any]], then: Bound[S]) -> Handle[S]:
    """Add a group. Raises ValueError: it has no members."""
    if not members:
        raise ValueError("a group needs members")
    last = step_of(then)
    body = _pack([], [*map(step_of, members), last])
    options = {name: last.options[name] for name in _INHERITED if name in last.options}
    step = Step(GROUP, last.queue, _TYPE, body, options)
    return Handle(core, Later(core, adder(core, step, None), "adding a group"))


def _pack(ids: list[str], steps: list[Step]) -> bytes:
    """A body: the ids of the members, if they were added, their steps, and the one behind them."""
    chains = [[step, *step.then] for step in steps]
    encoded = [[step.encode() for step in chain] for chain in chains]
    head = {"ids": ids, "steps": [[len(step) for step in chain] for chain in encoded]}
    data = [step for chain in encoded for step in chain]
    return b"".join([json.dumps(head, separators=(",", ":")).encode(), b"\n", *data])


def _unpack(body: bytes) -> tuple[list[str], list[Step]]:
    """What ``_pack`` packed. Raises BadJob."""
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
    """Add what came of a member of a group.

    Args:
        part: its header. failed: the id of the job, if it failed.
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
    """What a ``HeldJob`` is to its collection."""

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
    """A group that a worker has in its hands.

    Args:
        core: of its app.
        job: of the group.
    """

    def __init__(self, core: Core, job: _Held) -> None:
        self._core = core
        self._job = job
        # A letter that was sent back has another id, and the parts are where they were.
        self._id = job.letter.first_id if job.letter is not None else job.id
        self._parts = f"group.{self._id}"

    async def visit(self) -> bool:
        """Look whether all members have ended. Then the step behind them is added, and the group
        acknowledged; else it is handed back for a while.

        Returns:
            Whether it is done.

        Raises:
            BadJob: it makes no sense, or members failed.
            DisqueError: something could not be added or asked for.
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
        states = [
            outcome.state
            for first in range(0, len(ids), _MOST_IDS)
            for outcome in await client.wait(ids[first : first + _MOST_IDS], 0.001)
        ]
        if "pending" in states:
            await self._postpone()
            return False
        parts = _Parts(client, self._parts)
        await parts.take(len(ids))
        ended: dict[int, str] = {}
        if self._job.letter is None:
            # Those that ended without a word: nobody adds a part of a job that expires. Of a group
            # that was sent back the members may have been, too, as other jobs.
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
        """Retry time and number of copies of parts, as of what comes behind, or of its queue."""
        retry = last.options.get("retry", _PART_RETRY)
        copies = last.options.get("replicate")
        if copies is None:
            policy = await client.policy(last.queue)
            copies = None if policy is None else policy.replicate
        return f"{retry} {copies or 0}"

    async def _add(self, client: Client, members: list[Step], kept: str) -> list[str]:
        """Add the members, or those that are missing; returns the ids of all."""
        ids = []
        for number, step in enumerate(members):
            key = f"member {number} {self._id}"
            part = f"{self._parts} {number} {kept}"
            ids.append(await step.add(client, traces.current(), key=key, kept=DAY, part=part))
        return ids

    async def _note(self, client: Client, body: bytes) -> None:
        """Let the next one who has the group know the ids of its members. Without that it adds
        them again, which finds their ids, and adds nothing."""
        try:
            await client.update(self._job.id, body=body)
        except ReplyError:
            pass  # somebody has it already

    async def _postpone(self) -> None:
        if (processing := tracing.current()) is not None:
            processing.end("postponed")
        await self._job.nack(delay=min(10.0, 0.1 * 1.5 ** min(self._job.nacks, 20)))


class _Parts:
    """The parts of a group that this worker has taken.

    Args:
        queue: where they are.

    Attributes:
        values: results by the numbers of their members. failed: errors by these.
    """

    def __init__(self, client: Client, queue: str) -> None:
        self._client = client
        self._queue = queue
        self._values: list[Job] = []
        self._failures: list[Job] = []
        self.values: dict[int, Result] = {}
        self.failed: dict[int, str] = {}

    async def take(self, wanted: int) -> None:
        """Take all, or what comes in a moment."""
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
        """Leave them for the next one; the failures are done with, unless ``failures``."""
        back = self._values + (self._failures if failures else [])
        if back:
            await self._client.nack(*[job.id for job in back], delay=0)
        if self._failures and not failures:
            await self._client.ack(*[job.id for job in self._failures])

    async def ack(self) -> None:
        """They are done with."""
        jobs = self._values + self._failures
        await self._client.ack(*[job.id for job in jobs])
