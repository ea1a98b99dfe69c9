"""The client against scripted nodes: extensions that C Disque does not have."""

import math

import pytest
import trio

from disque_trio.client import (
    AddManyError,
    ConnectionLost,
    Job,
    Letter,
    MaxLenError,
    NoExtError,
    NoReplError,
    NoUniqueError,
    Outcome,
    Policy,
    Schedule,
    connect,
)
from tests.support.fake_disque import JOB_ID, FakeNode, array, bulk, fake_node, fake_nodes, job
from tests.support.harness import HANG_SECONDS

pytestmark = pytest.mark.trio

DROP = FakeNode.DROP
ID = JOB_ID.format(0)
FIRST = JOB_ID.format(7)
LETTER = [
    b"dead-from", b"mail", b"dead-why", b"attempts", b"dead-attempts", 3,
    b"dead-reason", b"no such address", b"first-id", FIRST.encode(),
]  # fmt: skip


def adds(node: FakeNode) -> list[list[bytes]]:
    """Return the ADDJOBs so far."""
    return [command for command in node.seen if command[0] == b"ADDJOB"]


def key_of(command: list[bytes]) -> bytes:
    return command[command.index(b"UNIQUE") + 1]


# ---- adding -------------------------------------------------------------------------------------


async def test_an_add_with_a_key_is_repeated_with_the_same_key_when_its_reply_is_lost() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ADDJOB"] = [DROP, DROP, b"+D-id\r\n"]
        assert await client.add("q", "body", unique=True) == "D-id"
        assert len(adds(node)) == 3
        assert len({key_of(command) for command in adds(node)}) == 1


async def test_each_add_makes_its_own_key_which_outlives_its_retries() -> None:
    async with fake_node() as node, connect([node.address], retry_for=10) as client:
        node.answers["ADDJOB"] = b"+D-id\r\n"
        for _ in range(2):
            await client.add("q", "body", unique=True)
        first, second = adds(node)
        assert key_of(first) != key_of(second)
        assert int(first[first.index(b"FOR") + 1]) > 10 + 5


async def test_a_key_is_kept_for_a_day_if_its_add_is_repeated_forever() -> None:
    async with fake_node() as node, connect([node.address], retry_for=math.inf) as client:
        node.answers["ADDJOB"] = b"+D-id\r\n"
        await client.add("q", "body", unique=True)
        [command] = adds(node)
        assert 86_400 <= int(command[command.index(b"FOR") + 1]) < 90_000


async def test_a_key_from_the_caller_is_kept_as_long_as_the_node_keeps_it() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ADDJOB"] = [DROP, b"+D-id\r\n"]
        assert await client.add("q", "body", unique="order 17") == "D-id"
        await client.add("q", "body", unique=b"\xff", unique_for=90)
        assert [command[4:] for command in adds(node)] == [
            [b"UNIQUE", b"order 17"],
            [b"UNIQUE", b"order 17"],
            [b"UNIQUE", b"\xff", b"FOR", b"90"],
        ]


async def test_a_key_may_be_free_when_the_job_starts_or_the_job_be_replaced() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ADDJOB"] = b"+D-id\r\n"
        await client.add("q", "body", unique="k", unique_until="start")
        await client.add("q", "body", unique="k", replace=True, delay=5)
        await client.add("q", "body", unique="k", replace=None, unique_until=None)
        assert [command[4:] for command in adds(node)] == [
            [b"UNIQUE", b"k", b"UNTIL", b"start"],
            [b"DELAY", b"5", b"UNIQUE", b"k", b"REPLACE"],
            [b"UNIQUE", b"k"],
        ]
        for wrong in (
            {"replace": True},
            {"unique": True, "replace": True},
            {"unique": "k", "unique_for": 5, "unique_until": "start"},
            {"unique": "k", "replace": True, "unique_until": "end"},
            {"unique": "k", "unique_until": "noon"},
        ):
            with pytest.raises(ValueError, match=r"unique_until|replace"):
                await client.add("q", "body", **wrong)  # type: ignore[arg-type]


async def test_without_a_key_an_add_is_not_repeated() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ADDJOB"] = [DROP, b"+D-id\r\n"]
        with pytest.raises(ConnectionLost) as caught:
            await client.add("q", "body", headers={"n": "v"})
        assert caught.value.maybe_executed
        assert len(adds(node)) == 1


async def test_an_add_with_a_key_is_repeated_at_another_node() -> None:
    async with fake_nodes(2) as [first, second]:
        second.priority = 5
        second.answers["ADDJOB"] = b"+D-id\r\n"
        async with trio.open_nursery() as nursery:

            async def fail() -> None:
                await first.wait_for(lambda: adds(first) != [])
                await first.stop()

            first.answers["ADDJOB"] = FakeNode.HANG
            nursery.start_soon(fail)
            async with connect([first.address, second.address]) as client:
                assert await client.add("q", "body", unique=True) == "D-id"
        assert key_of(adds(first)[0]) == key_of(adds(second)[0])


async def test_each_of_many_adds_is_repeated_with_its_own_key() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ADDJOB"] = [DROP, b"+D-1\r\n", b"+D-2\r\n"]
        assert await client.add_many("q", ["a", "b"], unique=True) == ["D-1", "D-2"]
        keys = {command[2]: {key_of(c) for c in adds(node) if c[2] == command[2]}
                for command in adds(node)}  # fmt: skip
        assert [len(found) for found in keys.values()] == [1, 1]
        assert keys[b"a"] != keys[b"b"]
        node.seen.clear()
        node.answers["ADDJOB"] = b"+D-3\r\n"
        await client.add_many("q", ["a", "b"], unique=["k", "l"], headers=iter([("n", "v")]))
        assert [command[4:] for command in adds(node)] == [
            [b"UNIQUE", key, b"HEADERS", b"1", b"n", b"v"] for key in (b"k", b"l")
        ]
        with pytest.raises(ValueError, match="zip"):
            await client.add_many("q", ["a", "b"], unique=["k"])


@pytest.mark.parametrize(("code", "kind"), [("NOEXT", NoExtError), ("NOUNIQ", NoUniqueError)])
async def test_errors_have_classes(code: str, kind: type[Exception]) -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ADDJOB"] = f"-{code} no\r\n".encode()
        with pytest.raises(kind):
            await client.add("q", "body", unique=True)


# ---- taking -------------------------------------------------------------------------------------


async def test_jobs_come_with_their_headers_if_requested() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        headers = bulk(b"n", b"1", b"m", b"\xff", b"n", b"2")
        entry = b"*5\r\n$1\r\nq\r\n$40\r\n%b\r\n$1\r\nb\r\n$7\r\nheaders\r\n%b"
        node.answers["GETJOB"] = array(entry % (ID.encode(), headers))
        [found] = await client.get("q", withcounters=False, withheaders=True)
        assert found.header_pairs == (("n", b"1"), ("m", b"\xff"), ("n", b"2"))
        assert found.headers == {"n": b"1", "m": b"\xff"}
        assert node.seen[-1] == [b"GETJOB", b"COUNT", b"1", b"WITHHEADERS", b"FROM", b"q"]
        node.answers["GETJOB"] = [array(entry % (ID.encode(), headers)), FakeNode.HANG]
        node.answers["ACKJOB"] = b":1\r\n"
        async with client.jobs("q", withheaders=True) as jobs:
            async for held in jobs:
                assert held.headers == {"n": b"1", "m": b"\xff"}
                assert held.header_pairs == found.header_pairs
                await held.ack()
                break


async def test_jobs_come_from_queues_that_match_a_pattern() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        entry = b"*3\r\n$6\r\nmail.1\r\n$40\r\n%b\r\n$1\r\nb\r\n" % ID.encode()
        node.answers["GETJOB"] = array(entry)
        [found] = await client.get("mail.*", withcounters=False, nohang=True, pattern=True)
        assert found.queue == "mail.1"
        wanted = [b"GETJOB", b"NOHANG", b"COUNT", b"1", b"PATTERN", b"FROM", b"mail.*"]
        assert node.seen[-1] == wanted
        node.answers["GETJOB"] = [array(entry), FakeNode.HANG]
        node.answers["ACKJOB"] = b":1\r\n"
        async with client.jobs("mail.*", pattern=True) as jobs:
            async for held in jobs:
                assert held.queue == "mail.1"
                await held.ack()
                break
        assert [b"PATTERN", b"FROM", b"mail.*"] in [seen[-3:] for seen in node.seen]


async def test_old_nodes_are_asked_for_headers_only_if_requested() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["GETJOB"] = job(0)
        [found] = await client.get("q")
        assert (found.headers, found.letter) == ({}, None)
        assert b"WITHHEADERS" not in node.seen[-1]


async def test_a_dead_letter_says_where_it_comes_from() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        counters = [b"nacks", 0, b"additional-deliveries", 0]
        node.answers["GETJOB"] = array(bulk(b"dead", ID.encode(), b"b", *counters, *LETTER))
        letter = Letter("mail", "attempts", 3, "no such address", FIRST)
        assert await client.get("dead") == [Job(ID, "dead", b"b", letter=letter)]
        node.answers["ACKJOB"] = b":1\r\n"
        async with client.jobs("dead") as jobs:
            async for held in jobs:
                assert held.letter == letter
                await held.ack()
                break


async def test_held_jobs_are_settled_with_all_options() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers |= {
            "GETJOB": [job(0), job(1), job(2), FakeNode.HANG],
            "ACKJOB": b":1\r\n",
            "NACK": b":1\r\n",
        }
        jobs = aiter(client.jobs("q"))
        await (await anext(jobs)).ack(result=b"42")
        await (await anext(jobs)).nack(delay=1.5, reason="try later")
        await (await anext(jobs)).dead(reason="no such address")
        said = [command for command in node.seen if command[0] in (b"ACKJOB", b"NACK")]
        ids = [JOB_ID.format(n).encode() for n in range(3)]
        assert said == [
            [b"ACKJOB", ids[0], b"RESULT", b"42"],
            [b"NACK", ids[1], b"DELAY", b"1.500", b"REASON", b"try later"],
            [b"NACK", ids[2], b"DEAD", b"REASON", b"no such address"],
        ]


async def test_a_cancel_can_have_tasks_ended_and_does_without_at_older_nodes() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        ids = [JOB_ID.format(n) for n in range(2)]
        node.answers["CANCEL"] = [b":2\r\n", b"-BADID Invalid Job ID format.\r\n", b":1\r\n"]
        assert await client.cancel(*ids, terminate=True) == 2
        assert await client.cancel(*ids, terminate=True) == 1
        said = [b" ".join(command[1:]).decode() for command in node.seen if command[0] == b"CANCEL"]
        both = " ".join(ids)
        assert said == [f"{both} TERMINATE", f"{both} TERMINATE", both]


async def test_a_job_that_was_cancelled_is_lost() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers |= {
            "GETJOB": [job(0), FakeNode.HANG],
            "WORKING": b"-CANCELLED somebody does not want it any more\r\n",
            "ACKJOB": b":0\r\n",
        }
        jobs = aiter(client.jobs("q"))
        held = await anext(jobs)
        with trio.fail_after(HANG_SECONDS):
            while not held.lost:
                await trio.lowlevel.checkpoint()
        await held.ack()


# ---- waiting, changing --------------------------------------------------------------------------


async def test_waiting_reports_how_jobs_ended() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["WAITJOB"] = bulk([b"D-1", b"acked", b"42"], [b"D-2", b"pending", None])
        assert await client.wait(["D-1", "D-2"], 1.5) == [
            Outcome("D-1", "acked", b"42"),
            Outcome("D-2", "pending", None),
        ]
        node.answers["WAITJOB"] = bulk([b"D-1", b"gone", None])
        assert await client.wait("D-1") == [Outcome("D-1", "gone", None)]
        first, second = (c for c in node.seen if c[0] == b"WAITJOB")
        assert 1400 <= int(first[1]) <= 1500
        assert first[2:] == [b"D-1", b"D-2"]
        assert second == [b"WAITJOB", b"0", b"D-1"]


async def test_waiting_continues_after_a_lost_connection() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["WAITJOB"] = [DROP, bulk([b"D-1", b"acked", None])]
        assert await client.wait("D-1") == [Outcome("D-1", "acked", None)]
        assert node.count("WAITJOB") == 2


async def test_other_commands_run_while_a_task_waits() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers |= {"WAITJOB": FakeNode.HANG, "QLEN": b":1\r\n"}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.wait, "D-1")
            await node.wait_for(lambda: node.count("WAITJOB") == 1)
            with trio.fail_after(HANG_SECONDS):
                assert await client.qlen("q") == 1
            nursery.cancel_scope.cancel()


async def test_commands_by_id_and_about_queues_send_all_options() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers |= {
            **dict.fromkeys(
                ("ACKJOB", "NACK", "CANCEL", "PROMOTE", "QDEL", "QPURGE", "QMOVE", "REDRIVE"),
                b":1\r\n",
            ),
            **dict.fromkeys(("UPDATEJOB", "QSET"), b"+OK\r\n"),
        }
        assert await client.ack("D-1", "D-2", result="r") == 1
        assert await client.nack("D-1", delay=3, reason="why") == 1
        assert await client.dead("D-1", "D-2") == 1
        assert await client.cancel("D-1", "D-2") == 1
        assert await client.promote("D-1", "D-2") == 1
        await client.update("D-1", body="new", delay=0, ttl=60, retry=5, queue="q")
        await client.set_policy("mail.*", attempts=3, dead="dead", backoff=(1, 60.5), dead_ttl=9)
        await client.set_policy("q", ttl=0, retry=-1, replicate=2, maxlen=9)
        await client.set_policy("q", maxbytes=5, rate="50/s", burst=10, active=3, groups="fair")
        await client.set_policy("q", ttl=None)  # changes nothing
        assert await client.delete_policy("q")
        assert await client.purge("q") == 1
        assert await client.move("q", "to") == 1
        assert await client.move("q", "to", count=5) == 1
        assert await client.redrive("dead") == 1
        assert await client.redrive("dead", to="mail", count=5, ids=["D-1", "D-2"]) == 1
        assert [b" ".join(command).decode() for command in node.seen[1:]] == [
            "ACKJOB D-1 D-2 RESULT r",
            "NACK D-1 DELAY 3 REASON why",
            "NACK D-1 D-2 DEAD",
            "CANCEL D-1 D-2",
            "PROMOTE D-1 D-2",
            "UPDATEJOB D-1 BODY new DELAY 0 TTL 60 RETRY 5 QUEUE q",
            "QSET mail.* ATTEMPTS 3 DEAD dead BACKOFF 1 60.500 DEADTTL 9",
            "QSET q TTL 0 RETRY  REPLICATE 2 MAXLEN 9",
            "QSET q MAXBYTES 5 RATE 50/s BURST 10 ACTIVE 3 GROUPS fair",
            "QDEL q",
            "QPURGE q",
            "QMOVE q to",
            "QMOVE q to COUNT 5",
            "REDRIVE dead",
            "REDRIVE dead TO mail COUNT 5 MATCH D-1 D-2",
        ]


async def test_policies_are_read() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        fields = [
            b"name", b"mail.*", b"attempts", 3, b"dead", b"dead", b"backoff", [b"0.5", b"60"],
            b"deadttl", 9, b"ttl", 8, b"retry", 0, b"replicate", 2, b"maxlen", 7,
            b"maxbytes", 6, b"rate", b"50/s", b"burst", 10, b"active", 3,
        ]  # fmt: skip
        policy = Policy("mail.*", 3, "dead", (0.5, 60.0), 9, 8, 0, 2, 7, 6, "50/s", 10, 3)
        node.answers["QGET"] = [
            bulk(*fields),
            b"*-1\r\n",
            array(bulk(*fields), bulk(b"name", b"q")),
        ]
        assert await client.policy("mail.urgent") == policy
        assert await client.policy("other") is None
        assert await client.policies() == [policy, Policy("q")]


async def test_schedules_are_set_and_changed() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["CRON"] = [b"+OK\r\n"] * 4 + [b":1\r\n", b"+D-1\r\n"]
        await client.schedules.set("s", "@every 10s", "q", "body")
        await client.schedules.set(
            *("s", "0 3 * * *", "q", b"body"),
            tz="Europe/Berlin",
            catchup=True,
            retry=5,
            priority=3,
            headers={"a": "b"},
        )
        await client.schedules.pause("s")
        await client.schedules.resume("s")
        assert await client.schedules.delete("s")
        assert await client.schedules.run("s") == "D-1"
        assert [b" ".join(command).decode() for command in node.seen[1:]] == [
            "CRON SET s @every 10s q body",
            "CRON SET s 0 3 * * * TZ Europe/Berlin CATCHUP q body RETRY 5 PRIORITY 3 HEADERS 1 a b",
            "CRON PAUSE s",
            "CRON RESUME s",
            "CRON DEL s",
            "CRON RUN s",
        ]


async def test_schedules_are_read() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        fields = [
            b"name", b"s", b"times", b"@daily", b"tz", b"UTC", b"catchup", 1, b"paused", 0,
            b"queue", b"q", b"options", [b"RETRY", b"5"], b"done-until", 7, b"next", 9,
        ]  # fmt: skip
        node.answers["CRON"] = [
            bulk(*fields, b"job", b"body", b"problem", b"NOREPL"),
            b"*-1\r\n",
            array(bulk(*fields)),
        ]
        common = ("s", "@daily", "UTC", "q")
        options = ("RETRY", "5")
        whole = Schedule(*common, b"body", options, True, False, 7, 9, "NOREPL")
        assert await client.schedules.get("s") == whole
        assert await client.schedules.get("other") is None
        listed = Schedule(*common, None, options, True, False, 7, 9, "")
        assert await client.schedules.all() == [listed]
        node.answers["CRON"] = bulk(*fields, b"user", b"eve")
        found = await client.schedules.get("s")
        assert found is not None
        assert (found.problem, found.user) == ("", "eve")


# ---- topics -------------------------------------------------------------------------------------


async def test_queues_are_bound_and_listed() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["BIND"] = b"+OK\r\n"
        node.answers["UNBIND"] = [b":1\r\n", b":0\r\n"]
        node.answers["BINDINGS"] = array(bulk(b"mail.*", b"a"), bulk(b"mail.new", b"b"))
        await client.bind("mail.*", "a")
        assert await client.unbind("mail.*", "a")
        assert not await client.unbind("mail.*", "a")
        bound = [("mail.*", "a"), ("mail.new", "b")]
        assert await client.bindings() == bound
        assert await client.bindings(queue="a", topic="mail.new") == bound
        assert [b" ".join(command).decode() for command in node.seen[-5:]] == [
            "BIND mail.* a",
            "UNBIND mail.* a",
            "UNBIND mail.* a",
            "BINDINGS",
            "BINDINGS QUEUE a MATCH mail.new",
        ]


async def test_publishing_returns_the_ids() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ADDJOB"] = [b"*2\r\n+D-1\r\n+D-2\r\n", b"*0\r\n"]
        assert await client.publish("mail.new", "body", priority=3, group="g") == ["D-1", "D-2"]
        assert await client.publish(b"news", "body", timeout=None) == []
        assert adds(node) == [
            [b"ADDJOB", b"@mail.new", b"body", b"5000", b"PRIORITY", b"3", b"GROUP", b"g"],
            [b"ADDJOB", b"@news", b"body", b"0"],
        ]


async def test_publishing_reports_what_was_not_added() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ADDJOB"] = [b"*2\r\n+D-1\r\n-NOREPL no\r\n", b"-MAXLEN no\r\n"]
        with pytest.raises(AddManyError, match="1 of 2") as caught:
            await client.publish("t", "body")
        assert caught.value.results[0] == "D-1"
        assert isinstance(caught.value.results[1], NoReplError)
        with pytest.raises(MaxLenError):
            await client.publish("t", "body")


async def test_publishing_is_repeated_only_with_its_key() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ADDJOB"] = [DROP, b"*1\r\n+D-1\r\n", DROP]
        assert await client.publish("t", "body", unique=True) == ["D-1"]
        assert len({key_of(command) for command in adds(node)}) == 1
        with pytest.raises(ConnectionLost):
            await client.publish("t", "body")
        assert len(adds(node)) == 3


async def test_a_schedule_of_a_topic_is_run() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["CRON"] = [b"*2\r\n+D-1\r\n+D-2\r\n", b"*1\r\n-PAUSED no\r\n"]
        assert await client.schedules.run("s") == ["D-1", "D-2"]
        with pytest.raises(AddManyError):
            await client.schedules.run("s")
