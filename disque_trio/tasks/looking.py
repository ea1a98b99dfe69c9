"""What is known of jobs that have not ended, or have ended a while ago."""

import base64
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, TypeAlias, TypeGuard

from disque_trio.client import Client, DisqueError, ReplyError, kept
from disque_trio.client.nodes import Node
from disque_trio.client.replies import Outcome, Record
from disque_trio.client.shown import ShownJob
from disque_trio.job_past import split_trace
from disque_trio.respclient.concurrency import Nursery, library
from disque_trio.tasks.members import GROUP, Members
from disque_trio.tasks.messages import DAY, ERROR_TYPE, TASK, Opened, Result

AT_ONCE: Final = 0.001
"""Seconds to wait for what has already happened."""
NEARBY: Final = 0.25
"""Seconds in which other nodes say what became of jobs that the node in use does not hold: it asks
them after 0.1 s."""
MOST_IDS: Final = 1000
"""The most ids in one WAITJOB."""
_AFTER_CRASH: Final = 3
"""Seconds after which stored results can be found again if their node has crashed."""
_MOST_REASONS: Final = 100
"""The most dead letters to look at for the reasons of failures."""

Elsewhere: TypeAlias = Callable[[str], AbstractAsyncContextManager[Client]]
"""Connects to the node with this address."""


@dataclass(frozen=True, slots=True)
class WorkflowStatus:
    """How far a group is.

    Attributes:
        total: how many members it has.
        done: how many have ended well.
        failed: why others failed for good, by their numbers, from 0; empty texts if that is not
            known.
    """

    total: int
    done: int
    failed: dict[int, str] = field(default_factory=dict)

    @property
    def pending(self) -> int:
        """How many have not ended."""
        return self.total - self.done - len(self.failed)


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """How far a task is, as it says itself.

    Attributes:
        fraction: from 0 to 1.
        text: what it says about that.
    """

    fraction: float
    text: str = ""


async def last_of(client: Client, ids: Sequence[str], seconds: float) -> list[Outcome]:
    """Return what became of jobs, or of the last ones known to follow them, within ``seconds`` for
    each thousand of these."""
    outcomes: dict[int, Outcome] = {}
    ask = dict(enumerate(ids))
    while ask:
        numbers, following = list(ask), {}
        for first in range(0, len(numbers), MOST_IDS):
            some = numbers[first : first + MOST_IDS]
            found = await client.wait([ask[number] for number in some], seconds)
            for number, outcome in zip(some, found, strict=True):
                outcomes[number] = outcome
                if outcome.state == "acked" and outcome.result is not None:
                    next = Result.decode(outcome.result).next
                    if next is not None:
                        following[number] = next
        ask = following
    return [outcomes[number] for number in range(len(ids))]


def letter_id(id: str) -> str:
    """Return the id of the dead letter that the job ``id`` becomes: all nodes make the same."""
    digest = sha256(b"dead " + id.encode()).digest()
    return f"{id[:11]}{base64.b64encode(digest[:18]).decode()}-ffff"


async def why(client: Client, id: str) -> str:
    """Return the reason in the job's dead letter, if the node in use has it."""
    record = await client.show(letter_id(id))
    letter = ShownJob.of(record or {})
    why = f" ({letter.dead_why})" if letter.dead_why else ""
    return split_trace(letter.dead_reason)[0] or f"the job is a dead letter{why}"


async def shown(client: Client, elsewhere: Elsewhere, id: str, but: str = "") -> ShownJob | None:
    """Return a job as the node in use shows it, or the first one to do so of all others; None: none
    does.

    Args:
        but: a field of SHOW; a node that shows the job without it is the last resort.
    """
    found: Record | None = None

    def is_enough(record: Record | None) -> bool:
        nonlocal found
        found = found or record
        if record is None or (but and record.get(but) is None):
            return False
        found = record
        return True

    async def ask(node: Node, nursery: Nursery) -> None:
        try:
            async with elsewhere(str(node.address)) as other:
                record = await other.show(id)
        except DisqueError:
            return
        if is_enough(record):
            nursery.cancel_scope.cancel()

    if not is_enough(await client.show(id)):
        hello = await client.hello()
        others = [node for node in hello.nodes if node.id != hello.node_id]
        if others:
            async with library().open_nursery() as nursery:
                for node in others:
                    nursery.start_soon(ask, node, nursery)
    return None if found is None else ShownJob.of(found)


async def last(client: Client, elsewhere: Elsewhere, id: str) -> Outcome:
    """Return what became of the last job that follows the job ``id``, as far as is known now."""
    while True:
        try:
            outcome, _ = await _now(client, elsewhere, id)
        except ReplyError:  # the user may not SHOW jobs
            [outcome] = await client.wait(id, NEARBY)
        if outcome.state != "acked" or outcome.result is None:
            return outcome
        next = Result.decode(outcome.result).next
        if next is None:
            return outcome
        id = next


async def store(client: Client, id: str, result: Result, replicate: int | None) -> None:
    """Store the result of the job ``id``, unless there is one already. Raises DisqueError."""
    queue = f"result.{id}"
    await kept.keep(client, queue, result.encode(), DAY, replicate, retry=_AFTER_CRASH)


async def stored(
    client: Client, elsewhere: Elsewhere, id: str, seconds: float | None
) -> Result | None:
    """Return the stored result of the job ``id``; None: there is none.

    Args:
        seconds: to wait for a node to find it after a crash; None: as long as that may take.
    """
    queue = f"result.{id}"
    found = await kept.peek(client, queue)
    if found is None:
        hello = await client.hello()
        for node in (node for node in hello.nodes if node.id != hello.node_id):
            try:
                async with elsewhere(str(node.address)) as other:
                    found = await kept.peek(other, queue)
            except DisqueError:
                continue
            if found is not None:
                break
    if found is None:
        longest = 2.0 * _AFTER_CRASH
        found = await kept.read(
            client, queue, longest if seconds is None else min(seconds, longest)
        )
    return None if found is None else Result.decode(found)


async def status(
    client: Client, elsewhere: Elsewhere, id: str, may_store: bool
) -> WorkflowStatus | None:
    """Return how far the job ``id`` is, or the one that follows it now, if that is a group; else,
    how the last group before it ended. may_store: whether results may be stored."""
    found: WorkflowStatus | None = None
    while True:
        outcome, job = await _now(client, elsewhere, id)
        result: Result | None = None
        if outcome.state == "acked" and outcome.result is not None:
            result = Result.decode(outcome.result)
        elif may_store and outcome.state in ("acked", "gone"):
            result = await stored(client, elsewhere, id, AT_ONCE)
        if result is not None:
            if result.members:
                found = _ended(result.members)
            if result.next is None:
                return found
            id = result.next
        else:
            if outcome.state == "dead":
                job = await shown(client, elsewhere, letter_id(id))
            return await _of_members(client, job) if _is_group(job) else found


async def progress(client: Client, elsewhere: Elsewhere, id: str) -> TaskProgress | None:
    """Return how far the task of the job ``id`` is, or of the one that follows it now. None: it has
    said nothing, or does not run. A group that is at work says how many members have ended."""
    while True:
        outcome, job = await _now(client, elsewhere, id, but="progress")
        if job is not None:
            break
        if outcome.state != "acked" or outcome.result is None:
            return None
        next = Result.decode(outcome.result).next
        if next is None:
            return None
        id = next
    if _is_group(job):
        found = await _of_members(client, job)
        ended = found.total - found.pending
        return TaskProgress(ended / found.total, f"{ended} of {found.total}")
    return TaskProgress(float(job.progress), job.progress_text) if job.progress else None


async def _now(
    client: Client, elsewhere: Elsewhere, id: str, but: str = ""
) -> tuple[Outcome, ShownJob | None]:
    """Return how a job has ended, or, if it has not, what a node shows of it. ``but``: see
    ``shown``."""
    [outcome] = await client.wait(id, AT_ONCE)
    if outcome.state != "pending":
        return outcome, None
    job = await shown(client, elsewhere, id, but)
    if job is None or job.state == "acked":
        # It has ended, which the node in use has yet to hear from another one.
        [outcome] = await client.wait(id, NEARBY)
        job = None
    return outcome, job


def _is_group(job: ShownJob | None) -> TypeGuard[ShownJob]:
    return job is not None and dict(job.header_pairs).get(TASK) == GROUP


def _ended(members: str) -> WorkflowStatus:
    total, _, numbers = members.partition(":")
    failed = {int(number): "" for number in numbers.split(",") if number}
    return WorkflowStatus(int(total), int(total) - len(failed), failed)


async def _of_members(client: Client, job: ShownJob) -> WorkflowStatus:
    pairs = [(name, value.encode(errors="surrogateescape")) for name, value in job.header_pairs]
    members = Members.decode(Opened.of(job.body, pairs).body)
    outcomes = await last_of(client, members.ids, NEARBY)
    failed = dict.fromkeys(sorted(members.failed), "")
    done = 0
    for number, outcome in enumerate(outcomes):
        result = Result.decode(outcome.result or b"")
        if outcome.state == "dead":
            reason = await why(client, outcome.id) if len(failed) < _MOST_REASONS else ""
            failed[number] = reason
        elif outcome.state == "acked" and result.content_type == ERROR_TYPE:
            failed[number] = result.data.decode("utf-8", "replace")
        elif outcome.state in ("expired", "cancelled"):
            failed[number] = outcome.state
        elif outcome.state != "pending" and number not in failed:
            done += 1
    return WorkflowStatus(len(members.packed), done, dict(sorted(failed.items())))
