"""How far the jobs in hand are, as their tasks say."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from disque_trio.client.shown import ShownJob
from disque_trio.overview import progress_walk
from disque_trio.overview.looks import Looks
from disque_trio.overview.running import RunningJob, RunningJobs
from disque_trio.respclient.errors import NoPermError

A, B = "a:1", "b:1"


def test_what_a_task_says_is_read_with_care() -> None:
    for text, fraction in (("0.4", 0.4), ("7", 1.0), ("-1", 0.0)):
        job = RunningJob.of(ShownJob(id="D-1", queue="q", progress=text, progress_text="page 4"))
        assert job == RunningJob("D-1", "q", fraction, "page 4")
    assert RunningJob.of(ShownJob(id="D-1", queue="q")) is None


def test_they_are_found_by_the_names_of_their_queues() -> None:
    running = RunningJobs()
    one, two, three = [RunningJob(f"D-{n}", q, 0.5, "") for n, q in enumerate(("b", "mail.a", "A"))]
    running.took(A, [one, two])
    running.took(B, [three])
    assert running.find("") == [three, one, two]
    assert running.find("A") == [three, two]
    assert running.find("mail.*") == [two]
    running.took(A, [two])
    running.node_lost(B)
    assert running.find("") == [two]


class Node:
    """A node with jobs in hand, and their progress; None: nothing is said."""

    def __init__(self, jobs: dict[bytes, bytes | None]) -> None:
        self.jobs = jobs
        self.refuses = False
        self.asked: list[str] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        yield self

    async def execute_many(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        self.asked += [command[0] for command in commands]
        return [self._answer(*command) for command in commands]

    def _answer(self, name: str, *words: Any) -> Any:
        if self.refuses:
            return NoPermError("NOPERM", "no")
        if name == "JSCAN":
            assert "TAKEN" in words
            ids = sorted(self.jobs)
            at = int(words[0])
            return [b"%d" % (at + 2 if at + 2 < len(ids) else 0), ids[at : at + 2]]
        assert words[1:] == ("MAXBODY", 0)
        said = self.jobs.get(words[0])
        more = [] if said is None else [b"progress", said, b"progress-text", b"so far"]
        return [b"id", words[0], b"queue", b"q", *more] if words[0] in self.jobs else None


class Time:
    time = staticmethod(trio.current_time)


async def test_a_node_is_asked_while_somebody_looks(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(progress_walk, "time", Time)
    node = Node({b"D-1": b"0.1", b"D-2": None, b"D-3": b"0.3"})
    looks, running = Looks(), RunningJobs()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(progress_walk.follow, node.open, A, looks, running)
        await trio.sleep(60)
        assert node.asked == []
        looks.running.at(trio.current_time())
        await trio.sleep(1)
        assert [(job.id, job.fraction) for job in running.find("")] == [("D-1", 0.1), ("D-3", 0.3)]
        node.jobs = {b"D-3": b"0.9"}
        await trio.sleep(5)
        assert running.find("") == [RunningJob("D-3", "q", 0.9, "so far")]
        await trio.sleep(60)  # nobody looks any more
        count = len(node.asked)
        await trio.sleep(60)
        assert len(node.asked) == count
        node.refuses = True
        looks.running.at(trio.current_time())
        await trio.sleep(1)
        assert running.find("") == []
        nursery.cancel_scope.cancel()
