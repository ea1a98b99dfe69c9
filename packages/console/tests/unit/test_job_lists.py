"""The lists of jobs by stage: what nodes tell of them is merged, and rows say what a job is."""

import json
from typing import cast

import pytest

from disque_console.io.calls import Answer, Calls
from disque_console.io.job_lists import find_first
from disque_console.model.job_lists import (
    LISTS,
    FirstJobs,
    ListedJobs,
    listed_for,
    merge_first,
    read_first,
)
from disque_console.model.job_rows import READ, row_of, words_of
from disque_console.model.job_scans import JobFilter
from disque_console.model.jobs import JobCopy
from disque_trio.client import Policy
from disque_trio.overview.nodes import Nodes
from disque_trio.overview.records import STAGES
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import ProtocolError, ReplyError

NOW = 1_700_000_000.0


def copy(number: int = 1, age: float = 0.0, **fields: object) -> JobCopy:
    """A job that was added ``age`` s ago."""
    id = f"D-aaaaaaaa-{number:024d}-05a1"
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    ctime = int((NOW - age) * 1e9)
    return JobCopy.of({"id": id, "ctime": ctime, "state": "active", **named})


def told(copies: list[JobCopy], **counts: int) -> FirstJobs:
    numbers = [word for name, count in counts.items() for word in (name.encode(), count)]
    first = read_first([[*numbers, b"on-disk", 3], []])
    return FirstJobs(first.counts, first.on_disk, copies)


def test_each_stage_has_a_list() -> None:
    assert tuple(each.stage for each in LISTS) == STAGES


def test_a_reply_has_counts_and_jobs() -> None:
    first = read_first([[b"fresh", 7, b"dead", 1, b"on-disk", 5], [[b"id", b"D-1", b"ctime", 9]]])
    assert (first.counts, first.on_disk) == ({"fresh": 7, "dead": 1}, 5)
    assert [job.id for job in first.copies] == ["D-1"]


def test_anything_else_is_an_error() -> None:
    for reply in (None, [], [b"0", []], [[], [], []], 5):
        with pytest.raises(ProtocolError):
            read_first(reply)  # type: ignore[arg-type]
    with pytest.raises(ReplyError):
        read_first(ReplyError("ERR", "invalid cursor or option name"))


def test_lists_of_several_nodes_become_one_in_its_order() -> None:
    long, short = copy(1, 9, client=4, client_since=60_000), copy(2, 9, client=5, client_since=1)
    found = merge_first(
        [("n1", told([short], running=2, fresh=1)), ("n2", told([long], running=1))],
        "running",
        NOW,
    )
    assert [(job.copy.id, job.address) for job in found.jobs] == [(long.id, "n2"), (short.id, "n1")]
    assert (found.counts["running"], found.counts["fresh"], found.on_disk) == (3, 1, 6)
    old, new = copy(1, 9), copy(2, 5)
    both = [("n1", told([new, old]))]
    assert [job.copy.id for job in merge_first(both, "fresh", NOW).jobs] == [old.id, new.id]
    assert [job.copy.id for job in merge_first(both, "dead", NOW).jobs] == [new.id, old.id]


def test_a_job_that_waits_on_several_nodes_is_listed_once_by_the_first_to_queue_it() -> None:
    late = copy(1, nacks=1, next_requeue_within=9_000)
    soon = copy(1, nacks=1, next_requeue_within=8_000)
    queued = copy(2, 50, nacks=1, state="queued", next_requeue_within=300_000)
    found = merge_first(
        [("n1", told([late])), ("n2", told([soon])), ("n3", told([queued]))], "retrying", NOW
    )
    assert [(job.copy.id, job.address) for job in found.jobs] == [
        (queued.id, "n3"),
        (soon.id, "n2"),
    ]
    assert [listed_for(job.copy, "retrying", NOW) for job in found.jobs] == [0, 8]


def test_a_delayed_job_is_due_when_its_delay_is_over_whatever_a_holder_waits_for() -> None:
    holder = copy(1, 10, delay=30, next_requeue_within=320_000)
    assert listed_for(holder, "delayed", NOW) == pytest.approx(20, abs=0.01)
    paused = copy(1, 10, delay=30, nacks=1, next_requeue_within=5_000)
    assert listed_for(paused, "retrying", NOW) == 5


def test_a_task_is_named_with_its_arguments_attempts_and_last_error() -> None:
    body = json.dumps({"args": [17, "ann"], "kwargs": {"lang": "dé"}}).encode()
    row = row_of(
        copy(
            body=body,
            headers=["task", "shop.send_mail", "task-retries", "4"],
            nacks=2,
            client=3,
            last_reason="OSError: down\n  File x\n",
        ),
        None,
    )
    assert (row.title, row.arguments) == ("shop.send_mail", '17, "ann", lang="dé"')
    assert (row.attempt, row.error) == ("3 of 5", "OSError: down")


def test_attempts_follow_the_policy_and_do_not_count_workers_that_stopped() -> None:
    policy = Policy("q", attempts=4)
    again = copy(nacks=3, last_reason="no luck [2 returned, 1 crashes, 0 alone]")
    assert (row_of(again, policy).attempt, row_of(again, policy).error) == ("1 of 4", "no luck")
    assert row_of(copy(), policy).attempt == ""
    assert row_of(copy(additional_deliveries=2), None).attempt == "2"
    dead = copy(dead_from="q", dead_why="attempts", dead_attempts=4, dead_reason="why", nacks=0)
    assert (row_of(dead, policy).attempt, row_of(dead, policy).error) == ("4", "why")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", ""),
        (b"  two\n words ", "two words"),
        (b"x" * 99, "x" * 19 + "…"),
        ("é".encode() * 60, "é" * 19 + "…"),
        (b"\xff\x00\x01", "bytes ff 00 01"),
        (b"ok\xff" + b"x" * 90, "bytes " + (b"ok\xff" + b"x" * 13).hex(" ") + "…"),
    ],
)
def test_the_first_words_of_a_body_are_shown(body: bytes, words: str) -> None:
    assert words_of(body, 20) == words


class Answering:
    """Nodes at ``n0:1`` and on, which answer every JSCAN with their reply."""

    def __init__(self, *replies: Reply) -> None:
        self.nodes = Nodes()
        self.replies = {f"n{number}:1": reply for number, reply in enumerate(replies)}
        self.asked: list[tuple[Argument, ...]] = []
        for address in self.replies:
            self.nodes.responded(address, address[1] * 40, 0.0)

    async def to(self, address: str, *command: Argument) -> Reply:
        self.asked.append(command)
        return self.replies[address]

    async def find(self, wanted: JobFilter) -> tuple[ListedJobs, list[Answer], list[str]]:
        return await find_first(cast(Calls, self), self.nodes, wanted, "dead", 50, NOW)


async def test_each_node_is_asked_once_and_those_that_cannot_answer_are_told_apart() -> None:
    job = [b"id", b"D-1", b"state", b"queued", b"ctime", 9]
    there = Answering(
        [[b"dead", 1], [job]],
        ReplyError("ERR", "invalid cursor or option name"),
        ReplyError("NOPERM", "this user has no permissions"),
    )
    wanted = JobFilter(queue="q", text="x")
    found, problems, old = await there.find(wanted)
    assert [listed.copy.id for listed in found.jobs] == ["D-1"]
    assert ([address for address, _ in problems], old) == (["n2:1"], ["n1:1"])
    assert len(there.asked) == 3
    words = ("JSCAN", "FIRST", 50, "STATE", "dead", "REPLY", "all", "CLIENT", "MAXBODY", READ)
    assert set(there.asked) == {(*words, "QUEUE", b"q", "BODY", b"x")}
