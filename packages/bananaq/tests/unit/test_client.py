"""The consumer helper against a scripted server: what it acknowledges, requeues, repeats."""

from __future__ import annotations

import gc
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trio.testing

from disque_bananaq.client import (
    AuthError,
    BananaClient,
    ConnectionLost,
    Event,
    HeldEvent,
    ProtocolError,
    ReplyError,
    connect,
    consumer,
    work,
)
from disque_bananaq.client.runner import CommandRunner
from disque_trio.notation.addresses import Address
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Connector, Reply
from tests.support.fake_disque import FakeNode, array, bulk
from tests.support.harness import HANG_SECONDS, free_port
from tests.support.scripted_server import scripted_server

OK = b"+OK\r\n"
ONE = b":1\r\n"
ZERO = b":0\r\n"
NIL = b"$-1\r\n"


class Stop(Exception):
    pass


def event(number: int, delivery: int = 1) -> bytes:
    """Return QGET's reply with the event of this number."""
    token = f"_{delivery}" if delivery > 1 else ""
    return bulk(b"%d_9%s" % (number, token.encode()), b"body %d" % number)


@asynccontextmanager
async def server(events: int = 0) -> AsyncIterator[FakeNode]:
    """Return a server with this many events; after these, clients wait."""
    node = FakeNode()
    node.port = free_port()
    node.answers |= {
        "QGET": [*[event(n) for n in range(events)], FakeNode.HANG],
        "QNOTIFY": FakeNode.HANG,
        "QACK": ONE,
        "QWORKING": ONE,
    }
    async with trio.open_nursery() as nursery:
        await node.start(nursery)
        yield node
        nursery.cancel_scope.cancel()


def commands(node: FakeNode, *names: str) -> list[list[bytes]]:
    return [command for command in node.seen if command[0].decode() in names]


def settled(node: FakeNode) -> list[tuple[str, bytes]]:
    """Return the numbers of the events that were acknowledged, and of those that were requeued."""
    found = []
    for command in node.seen:
        number = command[3].partition(b"_")[0] if len(command) > 3 else b""
        if command[0] == b"QACK":
            found.append(("back" if command[4:] == [b"REDO"] else "ack", number))
    return found


async def test_asking_for_the_next_event_acknowledges_the_previous_one() -> None:
    async with server(3) as node:
        seen = []
        with trio.fail_after(HANG_SECONDS):
            async with consumer("q", group="g", port=node.port) as events:
                async for held in events:
                    seen.append((held.id, held.queue, held.group, held.body, held.delivery))
                    assert settled(node) == [("ack", b"%d" % n) for n in range(len(seen) - 1)]
                    if len(seen) == 3:
                        assert await held.ack()
                        assert held.settled
                        break
        assert seen == [(f"{n}_9", "q", "g", b"body %d" % n, 1) for n in range(3)]
        assert settled(node) == [("ack", b"%d" % n) for n in range(3)]
        assert node.seen[0] == [b"QGET", b"q", b"g", b"EX", b"30", b"BLOCK", b"30"]
        assert node.seen[1] == [b"QACK", b"q", b"g", b"0_9"]


async def test_a_body_that_raises_requeues_its_event_at_the_end_of_the_block() -> None:
    async with server(2) as node:
        with pytest.raises(Stop):  # noqa: PT012
            async with consumer("q", group="g", port=node.port) as events:
                async for held in events:
                    if held.body == b"body 1":
                        raise Stop
        assert settled(node) == [("ack", b"0"), ("back", b"1")]


async def test_a_cancelled_body_requeues_its_event() -> None:
    async with server(1) as node:
        with trio.CancelScope() as scope:
            async with consumer("q", group="g", port=node.port) as events:
                async for _ in events:
                    scope.cancel()
                    await trio.sleep_forever()
        assert scope.cancelled_caught
        assert settled(node) == [("back", b"0")]


async def test_leaving_a_loop_without_a_block_requeues_its_event() -> None:
    async with server(2) as node:
        async for held in consumer("q", group="g", port=node.port):
            if held.body == b"body 1":
                break
        gc.collect()
        await node.wait_for(lambda: settled(node) == [("ack", b"0"), ("back", b"1")])
        await node.wait_for(lambda: node.open_connections == 0)


async def test_cancelling_a_loop_without_a_block_leaves_nothing_behind() -> None:
    async with server(1) as node:
        with trio.CancelScope() as scope:
            async for _ in consumer("q", group="g", port=node.port):
                scope.cancel()
        assert scope.cancelled_caught
        gc.collect()
        await node.wait_for(lambda: node.open_connections == 0)
        assert settled(node) in ([("ack", b"0")], [("back", b"0")])


def test_events_that_are_still_held_at_the_end_of_the_run_are_requeued() -> None:
    def answer(command: list[bytes]) -> bytes:
        return event(0) if command[0] == b"QGET" else ONE

    async def main(port: int) -> object:
        loop = consumer("q", group="g", port=port)
        async for _ in loop:
            break
        return loop

    with scripted_server(answer) as other:
        loop = trio.run(main, int(other.port))
        assert loop is not None
        assert other.seen[1:] == [[b"QACK", b"q", b"g", b"0_9", b"REDO"]]


async def test_events_can_be_acknowledged_explicitly_in_any_order() -> None:
    async with server(3) as node:
        held: list[HeldEvent] = []
        async with consumer("q", group="g", port=node.port, ack=False) as events:
            async for one in events:
                held.append(one)
                if len(held) == 3:
                    break
            assert settled(node) == []
            await held[2].ack()
            await held[0].ack()
            await held[0].ack()
        assert settled(node) == [("ack", b"2"), ("ack", b"0"), ("back", b"1")]


async def test_a_loop_waits_for_several_queues_together() -> None:
    async with server() as node:
        node.answers["QNOTIFY"] = [b"$1\r\nb\r\n", NIL, b"$1\r\na\r\n", FakeNode.HANG]
        node.answers["QGET"] = [NIL, event(7)]
        async with consumer("a", b"b", group="g", port=node.port) as events:
            async for held in events:
                assert (held.queue, held.body) == ("a", b"body 7")
                await events.stop()
        assert commands(node, "QNOTIFY") == [[b"QNOTIFY", b"g", b"30", b"a", b"b"]] * 3
        assert [command[1] for command in commands(node, "QGET")] == [b"b", b"a"]
        assert commands(node, "QACK") == [[b"QACK", b"a", b"g", b"7_9"]]


async def test_an_event_is_kept_while_it_is_processed() -> None:
    async with server(1) as node:
        async with consumer("q", group="g", port=node.port, hold=0.06) as events:
            async for held in events:
                await node.wait_for(lambda: node.count("QWORKING") >= 3)
                assert not held.lost
                await held.ack()
                break
        assert commands(node, "QWORKING")[0] == [
            b"QWORKING", b"q", b"g", b"0_9", b"EX", b"0.06"
        ]  # fmt: skip
        assert settled(node) == [("ack", b"0")]


async def test_an_event_that_others_may_have_received_is_lost() -> None:
    async with server(1) as node:
        node.answers |= {"QWORKING": ZERO, "QACK": ZERO}
        async with consumer("q", group="g", port=node.port, hold=0.03) as events:
            async for held in events:
                await node.wait_for(lambda: node.count("QWORKING") == 1)
                with trio.fail_after(HANG_SECONDS):
                    while not held.lost:
                        await trio.lowlevel.checkpoint()
                assert not await held.ack()
                await events.stop()
        assert node.count("QWORKING") == 1


async def test_an_acknowledged_event_is_not_lost_if_the_heartbeat_arrives_later() -> None:
    beating, acked = trio.Event(), trio.Event()

    class Slow(CommandRunner):
        """QWORKING arrives after the QACK, and so does its reply."""

        async def run(self, *command: Argument, repeat: bool) -> Reply:
            with trio.CancelScope(shield=True):
                if command[0] == "QACK":
                    await beating.wait()
                    return 1
                beating.set()
                await acked.wait()
                return 0

    async with trio.open_nursery() as nursery:
        runner = Slow(Connector(nursery, None, 1), Address(), retry_for=1)
        held = HeldEvent(runner, Event("1_9", "q", b"body"), "g", 0.001, lambda event: None)
        nursery.start_soon(held.beat)
        assert await held.ack()
        acked.set()
    assert not held.lost
    assert await held.ack()


async def test_a_heartbeat_that_finds_the_client_closed_is_the_last_one() -> None:
    async with trio.open_nursery() as nursery:
        runner = CommandRunner(Connector(nursery, None, 1), Address(), retry_for=1)
        held = HeldEvent(runner, Event("1_9", "q", b"body"), "g", 1, lambda event: None)
        runner.close()
        await held.beat()
    assert not held.lost


async def test_without_qworking_only_the_heartbeat_is_missing() -> None:
    async with server(2) as node:
        node.answers["QWORKING"] = b"-ERR unknown command\r\n"
        seen = 0
        async with consumer("q", group="g", port=node.port, hold=0.03) as events:
            async for _ in events:
                seen += 1
                await node.wait_for(lambda: node.count("QWORKING") == seen)  # noqa: B023
                if seen == 2:
                    await events.stop()
        assert settled(node) == [("ack", b"0"), ("ack", b"1")]


async def test_stop_ends_a_waiting_loop() -> None:
    async with server(1) as node:
        async with (
            trio.open_nursery() as nursery,
            consumer("q", group="g", port=node.port) as events,
        ):

            async def stop() -> None:
                await node.wait_for(lambda: node.count("QGET") == 2)
                await events.stop()

            nursery.start_soon(stop)
            with trio.fail_after(HANG_SECONDS):
                assert [held.id async for held in events] == ["0_9"]
        assert settled(node) == [("ack", b"0")]


async def test_stop_in_the_body_lets_it_finish() -> None:
    async with server(2) as node:
        loop = consumer("q", group="g", port=node.port)
        async for _ in loop:
            await loop.stop()
        assert settled(node) == [("ack", b"0")]
        assert node.count("QGET") == 1
        await node.wait_for(lambda: node.open_connections == 0)


async def test_a_loop_that_is_stopped_before_it_starts_takes_nothing() -> None:
    async with server(1) as node:
        loop = consumer("q", group="g", port=node.port)
        await loop.stop()
        assert [held async for held in loop] == []
        assert node.seen == []


@pytest.mark.parametrize("several", [False, True])
async def test_an_event_on_its_way_to_a_cancelled_loop_is_requeued(several: bool) -> None:
    async with server() as node:
        node.answers["QNOTIFY"] = b"$1\r\nq\r\n"
        node.late = event(5)
        queues = ("q", "other") if several else ("q",)
        async with trio.open_nursery() as nursery:

            async def consume() -> None:
                async with consumer(*queues, group="g", port=node.port) as events:
                    async for _ in events:
                        raise AssertionError("it was cancelled")

            nursery.start_soon(consume)
            await node.wait_for(lambda: node.count("QGET") == 1)
            nursery.cancel_scope.cancel()
        assert settled(node) == [("back", b"5")]


async def test_an_event_is_acknowledged_over_a_new_connection() -> None:
    async with server(2) as node:
        seen = []
        async with consumer("q", group="g", port=node.port) as events:
            async for held in events:
                seen.append(held.id)
                node.drop_all()
                if len(seen) == 2:
                    await events.stop()
        assert seen == ["0_9", "1_9"]
        assert settled(node) == [("ack", b"0"), ("ack", b"1")]


async def test_a_consumer_continues_when_the_server_is_back() -> None:
    async with server(1) as node, trio.open_nursery() as nursery:
        async with consumer("q", group="g", port=node.port) as events:
            async for held in events:
                if held.id == "7_9":
                    break
                node.answers["QGET"] = [event(7)]
                await node.stop()
                await node.start(nursery)
        assert settled(node) == [("ack", b"0"), ("back", b"7")]
        nursery.cancel_scope.cancel()


async def test_a_consumer_waits_for_a_server_that_is_not_ready() -> None:
    async with server(1) as node:
        loading, away = b"-LOADING reading\r\n", b"-ERR server-side error: no Redis\r\n"
        disk = b"-MISCONF cannot write\r\n"
        node.answers["QGET"] = [loading, away, disk, event(1)]
        node.answers["QACK"] = [away, disk, ONE]
        async with consumer("q", group="g", port=node.port) as events:
            async for held in events:
                assert held.id == "1_9"
                await events.stop()
        assert node.count("QACK") == 3


async def test_an_event_is_added_again_only_if_it_certainly_was_not_added() -> None:
    async with server() as node, connect(port=node.port) as client:
        node.answers["QADD"] = [b"-LOADING reading\r\n", b"$3\r\n1_2\r\n"]
        assert await client.add("q", "x", expire=1) == "1_2"
        node.answers["QADD"] = [b"-ERR server-side error: no answer\r\n", b"$3\r\n1_2\r\n"]
        with pytest.raises(ReplyError, match="no answer"):
            await client.add("q", "x", expire=1)
        assert node.count("QADD") == 3


async def test_a_client_cannot_be_used_after_its_block() -> None:
    async with server() as node:
        async with connect(port=node.port) as client:
            pass
        with pytest.raises(trio.ClosedResourceError):
            await client.status()
        with pytest.raises(trio.ClosedResourceError):
            await client.get("q", "g")


@pytest.mark.parametrize("bare", [False, True])
async def test_an_unreachable_server_is_an_error(bare: bool) -> None:
    loop = consumer("q", group="g", port=free_port(), retry_for=0)
    with pytest.raises(ConnectionLost):  # noqa: PT012
        if bare:
            async for _ in loop:
                pass
        else:
            async with loop:
                pass


async def test_an_error_reply_ends_the_loop() -> None:
    async with server() as node:
        node.answers["QGET"] = b"-ERR syntax error\r\n"
        for loop in (consumer("q", group="g", port=node.port),):
            with pytest.raises(ReplyError, match="syntax"):
                async for _ in loop:
                    pass
        await node.wait_for(lambda: node.open_connections == 0)


async def test_a_password_is_sent_on_every_connection() -> None:
    async with server(1) as node:
        node.answers["AUTH"] = OK
        async with consumer("q", group="g", port=node.port, password="secret") as events:
            async for _ in events:
                await events.stop()
        assert commands(node, "AUTH") == [[b"AUTH", b"secret"]] * node.connections
        assert node.connections == 2
        node.answers["AUTH"] = b"-WRONGPASS no\r\n"
        with pytest.raises(AuthError):
            async with connect(port=node.port, password="other"):
                pass


async def test_without_time_to_hold_an_event_it_is_delivered_at_most_once() -> None:
    async with server(2) as node:
        async with consumer("q", group="g", port=node.port, hold=0) as events:
            async for held in events:
                assert held.settled
                if held.body == b"body 1":
                    break
        assert node.seen[0][3:5] == [b"EX", b"0"]
        assert set(node.names()) == {"QGET"}


def test_a_consumer_needs_a_queue() -> None:
    with pytest.raises(ValueError, match="queue"):
        consumer(group="g")


async def test_the_id_contains_the_number_of_the_delivery() -> None:
    async with server() as node:
        node.answers["QGET"] = [event(1, 3)]
        async with connect(port=node.port) as client:
            got = await client.get("q", "g", hold=1.5)
        assert got is not None
        assert (got.id, got.delivery) == ("1_9_3", 3)
        assert node.seen == [[b"QGET", b"q", b"g", b"EX", b"1.5"]]


async def methods(client: BananaClient) -> list[object]:
    await client.add_noblock("q", "x", expire=60)
    await client.flush("q")
    return [
        await client.add(b"q\xff", b"\0", expire=0.25),
        await client.get("q", "g", wait=2),
        await client.ack("q", "g", "1_2"),
        await client.working("q", "g", "1_2"),
        await client.give_back("q", "g", "1_2"),
        await client.notify("g", "a", "b", wait=0),
        await client.status("q", groups=["g"]),
        await client.info(),
        await client.execute("PING"),
    ]


async def test_every_command_has_a_method() -> None:
    async with server() as node:
        counts = bulk(b"total", 5, b"done", 2)
        node.answers |= {
            "QADD": [OK, b"$3\r\n1_2\r\n"],
            "QFLUSH": OK,
            "QGET": NIL,
            "QWORKING": ZERO,
            "QNOTIFY": b"$1\r\nb\r\n",
            "QSTATUS": array(array(b"$1\r\nq\r\n", array(b"$1\r\ng\r\n", counts))),
            "QINFO": bulk(b"q g total:5"),
            "PING": b"+PONG\r\n",
        }
        async with connect(port=node.port) as client:
            assert await methods(client) == [
                "1_2",
                None,
                True,
                False,
                True,
                "b",
                {"q": {"g": {"total": 5, "done": 2}}},
                ["q g total:5"],
                b"PONG",
            ]
        assert [b" ".join(command) for command in node.seen] == [
            b"QADD q 60 x NOBLOCK",
            b"QFLUSH q",
            b"QADD q\xff 0.25 \0",
            b"QGET q g EX 30 BLOCK 2",
            b"QACK q g 1_2",
            b"QWORKING q g 1_2 EX 30",
            b"QACK q g 1_2 REDO",
            b"QNOTIFY g 0 a b",
            b"QSTATUS q GROUPS g",
            b"QINFO",
            b"PING",
        ]


@pytest.mark.parametrize("reply", [OK, ONE, b"*1\r\n:1\r\n", b"*2\r\n$1\r\na\r\n:1\r\n"])
async def test_a_malformed_event_is_refused(reply: bytes) -> None:
    async with server() as node:
        node.answers["QGET"] = reply
        async with connect(port=node.port) as client:
            with pytest.raises(ProtocolError):
                await client.get("q", "g")


@pytest.mark.parametrize("retry_lost", [False, True])
async def test_an_event_with_an_unknown_result_is_added_again_only_on_request(
    retry_lost: bool,
) -> None:
    async with server() as node:
        node.answers["QADD"] = [FakeNode.DROP, b"$3\r\n1_2\r\n"]
        async with connect(port=node.port) as client:
            if retry_lost:
                assert await client.add("q", "x", expire=1, retry_lost=True) == "1_2"
            else:
                with pytest.raises(ConnectionLost) as lost:
                    await client.add("q", "x", expire=1)
                assert lost.value.maybe_executed
        assert node.count("QADD") == 1 + retry_lost


async def test_an_invalid_time_is_refused() -> None:
    async with server() as node, connect(port=node.port) as client:
        for nonsense in (float("nan"), float("inf")):
            with pytest.raises(ValueError, match="seconds"):
                await client.add("q", "x", expire=nonsense)
        with pytest.raises(ValueError, match="negative"):
            client.events("q", group="g", hold=-1)
        assert node.seen == []


async def test_slow_attempts_to_connect_do_not_count_as_a_working_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("disque_trio.respclient.retry._WORKED_FOR_A_WHILE", 0.05)
    async with server(1) as node:
        node.answers["AUTH"] = [OK, OK, FakeNode.HANG]
        node.answers["QGET"] = [event(0), FakeNode.DROP]
        with trio.fail_after(20), pytest.raises(ConnectionLost, match="timed out"):  # noqa: PT012
            async with connect(
                port=node.port, password="x", connect_timeout=0.1, retry_for=0.2
            ) as client:
                async for held in client.events("q", group="g"):
                    held.release()


# ---- work -------------------------------------------------------------------------------------


def ending(node: FakeNode, after: int) -> Callable[[], None]:
    """Tells this process to end when this many events have been handled."""
    handled = 0

    def one_more() -> None:
        nonlocal handled
        handled += 1
        if handled == after:
            signal.raise_signal(signal.SIGTERM)

    return one_more


async def test_a_handler_runs_for_every_event_until_the_process_is_told_to_end() -> None:
    async with server(6) as node:
        seen = []
        together = most = 0
        one_more = ending(node, 6)

        async def handle(held: HeldEvent) -> None:
            nonlocal together, most
            together += 1
            most = max(most, together)
            await node.wait_for(lambda: most == 3)
            seen.append(held.id)
            together -= 1
            one_more()

        with trio.fail_after(HANG_SECONDS):
            await work("q", "g", handle, concurrency=3, port=node.port)
        assert most == 3
        assert sorted(seen) == [f"{n}_9" for n in range(6)]
        assert sorted(settled(node)) == [("ack", b"%d" % n) for n in range(6)]
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


async def test_an_event_whose_handler_failed_is_delivered_again_a_little_later() -> None:
    async with server(2) as node:
        one_more = ending(node, 2)

        async def handle(held: HeldEvent) -> None:
            one_more()
            if held.id == "0_9":
                raise Stop

        with trio.fail_after(HANG_SECONDS):
            await work(["q"], "g", handle, again_after=0.5, port=node.port)
        back = [b"QWORKING", b"q", b"g", b"0_9", b"EX", b"0.5"]
        assert commands(node, "QWORKING") == [back]
        assert settled(node) == [("ack", b"1")]


async def test_a_second_signal_does_not_wait_for_the_handlers() -> None:
    async with server(1) as node:

        async def handle(held: HeldEvent) -> None:
            signal.raise_signal(signal.SIGTERM)
            await trio.testing.wait_all_tasks_blocked()
            signal.raise_signal(signal.SIGTERM)
            await trio.sleep_forever()

        with trio.fail_after(HANG_SECONDS):
            await work("q", "g", handle, port=node.port)
        assert settled(node) == [("back", b"0")]


async def test_a_worker_whose_server_is_gone_reports_it() -> None:
    async with server() as node:
        node.answers["QGET"] = FakeNode.DROP

        async def handle(held: HeldEvent) -> None:
            raise AssertionError("there is no event")

        run = partial(work, "q", "g", handle, concurrency=2, port=node.port, retry_for=0.05)
        with pytest.raises(ConnectionLost):
            await run()
