"""While a large record is being written, only clients that depend on it wait."""

import errno
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import hiredis
import pytest
import trio
import trio.testing

from disque_trio.aof import rewriting
from disque_trio.aof.dump import PIECE, Dump
from disque_trio.aof.writer import LARGE, SYNC_AT_ONCE
from tests.support.harness import HANG_SECONDS
from tests.support.slow_disk_stage import BODY, Stage, until


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


async def test_clients_that_do_not_depend_on_it_are_served(stage: Stage) -> None:
    async with stage.running():
        adding, other = stage.wire(), stage.wire()
        await stage.add_large(adding)
        assert await other.ask("PING") == b"PONG"
        for _ in range(3):
            info = await other.ask("INFO")
            assert isinstance(info, bytes)
            assert isinstance(await other.ask("CONFIG", "GET", "hz"), list)
        assert stage.engine.hold.on
        assert stage.bench.node.store.jobs.count == 1
        stage.disk.let_all()
        assert isinstance(await adding.reply(), bytes)
    assert stage.disk.by_turns == 0


async def test_clients_that_could_see_the_job_wait_and_keep_their_order(stage: Stage) -> None:
    async with stage.running():
        adding, other = stage.wire(), stage.wire()
        await stage.add_large(adding)
        await adding.send(("PING",))
        await other.send(("PING",), ("GETJOB", "FROM", "q"), ("PING",))
        assert await other.reply() == b"PONG"
        assert await stage.wire().ask("PING") == b"PONG"  # a turn later
        assert stage.engine.hold.on
        assert stage.bench.number_queued() == 1
        stage.disk.let_all()
        id = await adding.reply()
        assert await adding.reply() == b"PONG"
        assert await other.reply() == [[b"q", id, BODY]]
        assert await other.reply() == b"PONG"


async def test_a_client_that_waited_for_the_job_gets_it_when_it_is_in_the_file(
    stage: Stage,
) -> None:
    async with stage.running():
        adding, waiting = stage.wire(), stage.wire()
        await waiting.send(("GETJOB", "FROM", "q"))
        assert await adding.ask("PING") == b"PONG"
        await stage.add_large(adding)
        assert await stage.wire().ask("PING") == b"PONG"
        await waiting.send(("PING",))
        assert await stage.wire().ask("PING") == b"PONG"
        stage.disk.let_all()
        id = await adding.reply()
        assert await waiting.reply() == [[b"q", id, BODY]]
        assert await waiting.reply() == b"PONG"


async def test_requests_of_a_client_that_left_are_served_afterwards(stage: Stage) -> None:
    async with stage.running():
        adding, leaving, other = stage.wire(), stage.wire(), stage.wire()
        id = await adding.ask("ADDJOB", "other", "b", 0)
        await stage.add_large(adding)
        await leaving.send(("PING",), ("ACKJOB", id))  # type: ignore[arg-type]
        assert await leaving.reply() == b"PONG"
        leaving.end()
        assert await other.ask("PING") == b"PONG"
        assert stage.bench.node.store.jobs.count == 2
        stage.disk.let_all()
        assert await adding.reply()
        assert await leaving.reply() == 1
        with trio.fail_after(HANG_SECONDS):
            while len(stage.engine.clients.connections) != 2:
                await trio.sleep(0.005)


async def test_a_client_that_is_gone_before_its_reply_does_no_harm(stage: Stage) -> None:
    async with stage.running():
        adding = stage.wire()
        connection = stage.engine.clients.by_id[1]
        await stage.add_large(adding)
        stage.engine.clients.close_soon(connection)  # as CLIENT KILL
        assert await stage.wire().ask("PING") == b"PONG"
        assert connection.closed
        stage.disk.let_all()
        other = stage.wire()
        reply = await other.ask("GETJOB", "FROM", "q")
        assert isinstance(reply, list)
        assert len(reply) == 1


async def test_time_stands_still_for_jobs(stage: Stage) -> None:
    async with stage.running():
        adding = stage.wire()
        delayed = await adding.ask("ADDJOB", "q", "b", 0, "DELAY", 1)
        await stage.add_large(adding)
        job = stage.bench.node.store.jobs.get(delayed)  # type: ignore[arg-type]
        assert job is not None
        with trio.fail_after(HANG_SECONDS):
            while stage.engine.clock.now() < job.qtime + 100:
                await trio.sleep(0.05)
        assert stage.bench.number_queued() == 1
        stage.disk.let_all()
        assert await adding.reply()
        with trio.fail_after(HANG_SECONDS):
            while stage.bench.number_queued() < 2:
                await trio.sleep(0.01)


@pytest.mark.parametrize("policy", ["everysec", "always", "no"])
async def test_it_is_synced_where_it_was_written(tmp_path: Path, policy: str) -> None:
    """If another thread synced it, a turn with a small write would have to wait for that sync."""
    stage = Stage(tmp_path, policy)
    stage.disk.let_all()
    try:
        async with stage.running():
            adding = stage.wire()
            id = await adding.ask("ADDJOB", "q", bytes(SYNC_AT_ONCE), 0)
            assert (stage.disk.synced_by_threads > 0) == (policy != "no")
            small = await adding.ask("ADDJOB", "q", "small", 0)
    finally:
        stage.close()
    assert stage.loaded() == {id, small}


async def test_when_it_cannot_be_written_nothing_is_confirmed(stage: Stage) -> None:
    async with stage.running():
        adding, other = stage.wire(), stage.wire()
        before = await other.ask("ADDJOB", "q", "b", 0)
        size = stage.path.stat().st_size
        await stage.add_large(adding)
        await other.send(("GETJOB", "FROM", "q"))
        stage.disk.failure = OSError(errno.ENOSPC, "No space left on device")
        stage.disk.let_all()
        reply = await adding.reply()
        assert isinstance(reply, hiredis.ReplyError)
        assert str(reply).startswith("MISCONF Errors writing to the AOF file: No space")
        assert await other.reply() == [[b"q", before, b"b"]]
        assert stage.path.stat().st_size == size
        assert stage.loaded() == {before}
        stage.disk.failure = None
        with trio.fail_after(HANG_SECONDS):
            while isinstance(await other.ask("PING"), hiredis.ReplyError):
                await trio.sleep(0.05)
    assert len(stage.loaded()) == 2
    assert stage.disk.by_turns < LARGE


async def test_clients_are_served_while_it_is_tried_again(stage: Stage) -> None:
    async with stage.running():
        adding, other = stage.wire(), stage.wire()
        await stage.add_large(adding)
        stage.disk.failure = OSError(errno.ENOSPC, "No space left on device")
        stage.disk.let(PIECE)
        assert isinstance(await adding.reply(), hiredis.ReplyError)
        stage.disk.failure = None
        await until(lambda: stage.engine.hold.on)
        await other.send(("INFO",), ("ADDJOB", "q", "small", 0))
        assert isinstance(await other.reply(), bytes)
        assert stage.engine.hold.on
        assert stage.bench.node.store.jobs.count == 1
        stage.disk.let_all()
        id = await other.reply()
        assert isinstance(id, bytes)
    assert len(stage.loaded()) == 2
    assert stage.disk.by_turns < LARGE


def begin_rewrite(stage: Stage) -> None:
    """Begin a dump from memory, as when the file cannot be compacted."""
    stage.bench.node.compactable = False
    assert stage.persistence.rewriting.want() is None


def switch_off_and_on(stage: Stage) -> None:
    for on in (False, True):
        stage.config.appendonly = on
        stage.persistence.rewriting.apply()


async def dump_begins(stage: Stage) -> Dump:
    await until(lambda: stage.persistence.file.new is not None)
    dump = stage.persistence.file.new
    assert isinstance(dump, Dump)
    return dump


@pytest.mark.parametrize("begin", [begin_rewrite, switch_off_and_on])
async def test_a_dump_has_it_as_well(stage: Stage, begin: Callable[[Stage], None]) -> None:
    async with stage.running():
        adding, other = stage.wire(), stage.wire()
        first = await adding.ask("ADDJOB", "q", "first", 0)
        stage.disk.may_sync.clear()
        begin(stage)
        dump = await dump_begins(stage)
        await until(lambda: dump.complete)
        await stage.add_large(adding)
        assert await other.ask("PING") == b"PONG"
        assert stage.persistence.file.new is dump
        stage.disk.let_all()
        id = await adding.reply()
        last = await adding.ask("ADDJOB", "q", "last", 0)
        stage.disk.may_sync.set()
        await until(lambda: stage.persistence.info()["aof_last_rewrite_time_sec"] != -1)
        assert dump.size == stage.path.stat().st_size
    assert stage.loaded() == {first, id, last}
    assert stage.disk.by_turns < LARGE


async def test_a_dump_goes_on_behind_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "JOBS_A_STEP", 1)
    async with stage.running():
        adding = stage.wire()
        await adding.send(*[("ADDJOB", "q", "small", 0)] * 1000)
        ids = {await adding.reply() for _ in range(1000)}
        request = b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$%d\r\n%b\r\n$1\r\n0\r\n" % (len(BODY), BODY)
        await adding.send_bytes(request[:-1])
        await trio.testing.wait_all_tasks_blocked()
        begin_rewrite(stage)
        with trio.fail_after(HANG_SECONDS):
            while stage.persistence.file.new is None:
                await trio.lowlevel.checkpoint()
            dump = await dump_begins(stage)
            await adding.send_bytes(request[-1:])
            while not stage.engine.hold.on:
                await trio.lowlevel.checkpoint()
        assert not dump.complete
        size = dump.size
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        assert dump.size == size
        stage.disk.let_all()
        ids.add(await adding.reply())
        await until(lambda: stage.persistence.info()["aof_last_rewrite_time_sec"] != -1)
        assert dump.size == stage.path.stat().st_size
    assert stage.loaded() == ids
    assert stage.disk.by_turns < LARGE


async def test_a_dump_that_is_given_up_meanwhile_does_no_harm(stage: Stage) -> None:
    async with stage.running():
        adding = stage.wire()
        begin_rewrite(stage)
        stage.disk.may_sync.clear()
        dump = await dump_begins(stage)
        await until(lambda: dump.complete)
        await stage.add_large(adding)
        stage.persistence.rewriting.give_up(OSError(errno.EIO, "Input/output error"))
        stage.disk.may_sync.set()
        await trio.testing.wait_all_tasks_blocked()
        stage.disk.let_all()
        id = await adding.reply()
    assert stage.loaded() == {id}


async def test_a_node_that_stops_waits_for_it(stage: Stage) -> None:
    async with stage.running():
        adding = stage.wire()
        await stage.add_large(adding)
        threading.Timer(0.2, stage.disk.let_all).start()
        with trio.fail_after(HANG_SECONDS):
            await stage.persistence.file.until_stored()
        id = await adding.reply()
    assert stage.loaded() == {id}


async def test_a_node_that_is_cancelled_has_it_in_the_file(stage: Stage) -> None:
    async with stage.running():
        await stage.add_large(stage.wire())
    assert not stage.engine.hold.on
    assert len(stage.loaded()) == 1


async def test_settings_that_change_meanwhile_hold_afterwards(stage: Stage) -> None:
    async with stage.running():
        adding = stage.wire()
        await stage.add_large(adding)
        stage.config.appendonly = False
        stage.persistence.rewriting.apply()  # as when the configuration is read again
        assert stage.bench.node.journaling
        stage.disk.let_all()
        id = await adding.reply()
        assert not stage.bench.node.journaling
        assert not stage.persistence.active
    assert stage.loaded() == {id}


async def test_a_rewrite_does_not_lose_it(stage: Stage) -> None:
    async with stage.running():
        adding = stage.wire()
        first = await adding.ask("ADDJOB", "q", "first", 0)
        persistence = stage.persistence
        assert persistence.rewriting.want() is None
        with trio.fail_after(HANG_SECONDS):
            while not persistence.info()["aof_rewrite_in_progress"]:
                await trio.sleep(0.01)
        await stage.add_large(adding)
        stage.disk.let_all()
        id = await adding.reply()
        with trio.fail_after(HANG_SECONDS):
            while persistence.info()["aof_last_rewrite_time_sec"] == -1:
                await trio.sleep(0.02)
        last = await adding.ask("ADDJOB", "q", "last", 0)
    assert stage.loaded() == {first, id, last}


async def test_one_after_the_other(stage: Stage) -> None:
    stage.disk.let_all()
    async with stage.running():
        wires = [stage.wire() for _ in range(4)]
        for wire in wires:
            await wire.send(("ADDJOB", "q", BODY, 0), ("ADDJOB", "q", "small", 0))
        ids = {await wire.reply() for wire in wires for _ in range(2)}
    assert stage.loaded() == ids
    assert len(ids) == 8
