"""A group whose members have ended, at nodes that do not take what its workers know of them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from disque_trio.client import Job, NoJobError, NoReplError
from disque_trio.client.replies import Outcome
from disque_trio.tasks import Disque
from disque_trio.tasks.calling import InLoop
from disque_trio.tasks.execution import Execution
from disque_trio.tasks.members import GROUP, TYPE, Members
from disque_trio.tasks.messages import PART, Result, Step, pack
from tests.support.fake_job import FakeJob

pytestmark = pytest.mark.trio

JSON = "application/json"
MEMBER = Step("work", "q", JSON, b'{"args":[],"kwargs":{}}')
GROUP_OF_TWO = Members((pack(MEMBER), pack(MEMBER)), 30, None, JSON).encode()


class Nodes:
    """Nodes with parts of all members. ``problem``: why they add no jobs.

    Attributes:
        keys: those of the jobs that were added.
    """

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem
        self.keys: list[object] = []
        self.ended = False

    async def run(self, function: Callable[[Any], Awaitable[Any]]) -> Any:
        return await function(self)

    def run_sync(self, function: Callable[[Any], Awaitable[Any]]) -> Any:
        raise NotImplementedError

    async def policy(self, queue: str) -> None: ...

    async def add(self, queue: str, body: bytes, *, unique: object, **options: Any) -> str:
        if self.problem is not None:
            raise self.problem
        self.keys.append(unique)
        return f"D-{unique}"

    async def wait(self, ids: Sequence[str], seconds: float) -> list[Outcome]:
        return [Outcome(id, "acked" if self.ended else "pending", None) for id in ids]

    async def get(self, queue: str, **options: Any) -> list[Job]:
        part = Result(JSON, b"7").encode()
        pairs = [((PART, b"%d" % number),) for number in range(2)]
        return [Job(f"D-{pair}", queue, part, header_pairs=pair) for pair in pairs]

    async def ack(self, *ids: str) -> None: ...


class OrphanedGroup(FakeJob):
    """A group that no node changes."""

    async def update(self, *, body: str | bytes) -> None:
        raise NoJobError("NOJOB", "Job not known in the context of this node.")


def visit(nacks: int) -> FakeJob:
    return OrphanedGroup(GROUP, GROUP_OF_TWO, content_type=TYPE, nacks=nacks)


async def test_a_group_ends_although_no_node_stores_the_ids_of_its_members() -> None:
    app = Disque("disque://nowhere.invalid")
    nodes = Nodes()
    execution = Execution(app.core, InLoop(None))
    with app.core.using(nodes):
        first, second, last = [visit(nacks) for nacks in range(3)]
        for early in (first, second):
            assert (await execution.run(early)).kind == "postponed"
            assert early.settled[0] == "nack"
        nodes.ended = True
        assert (await execution.run(last)).kind == "done"
    assert last.settled == ("ack", Result(JSON, b"[7,7]", members="2:"))
    assert len(set(nodes.keys)) == 2  # the same ones each time


async def test_a_group_whose_members_a_node_refuses_does_not_pause_for_longer_than_otherwise() -> (
    None
):
    app = Disque("disque://nowhere.invalid")
    execution = Execution(app.core, InLoop(None))
    job = visit(nacks=30)
    with app.core.using(Nodes(NoReplError("NOREPL", "not enough nodes"))):
        assert (await execution.run(job)).kind == "retried"
    assert job.settled[:2] == ("nack", 10)
