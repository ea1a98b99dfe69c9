"""While the file cannot be written, records are kept, in order and up to a bound, and the server
goes on."""

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import hiredis
import pytest

from disque_trio.aof import rewriting, writer
from disque_trio.aof.writer import AofWriter
from tests.support.aof_disk import SimulatedDisk
from tests.support.slow_disk_stage import Stage, until

NO_ROOM = [errno.ENOSPC, errno.EDQUOT, errno.EFBIG]


# ---- the writer ---------------------------------------------------------------------------------


@pytest.mark.parametrize("code", NO_ROOM)
def test_without_room_the_file_is_as_it_was_and_records_wait(code: int) -> None:
    disk = SimulatedDisk(seed=3)
    aof = AofWriter(disk, "aof", "everysec")
    assert aof.append([b"one"])
    disk.fail = {"write"}
    disk.write_error = code
    assert not aof.append([b"two"])
    assert not aof.append([b"three", b"four"])
    assert aof.problem
    assert not aof.distrusted
    assert disk.names["aof"].data == b"one"
    assert aof.kept_size == len(b"twothreefour")
    disk.fail = set()
    assert aof.retry()
    assert disk.names["aof"].data == b"onetwothreefour"
    assert aof.kept_size == 0


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_another_error_may_be_about_what_was_written_before(code: int) -> None:
    disk = SimulatedDisk(seed=3)
    aof = AofWriter(disk, "aof", "everysec")
    assert aof.append([b"one"])
    disk.fail = {"write"}
    disk.write_error = code
    assert not aof.append([b"two"])
    disk.fail = set()
    assert not aof.retry()
    assert aof.distrusted
    assert not aof.append([b"three"])
    assert aof.kept == []  # a new file will have everything, from memory
    assert aof.kept_size == 0
    assert disk.names["aof"].data == b"one"


class Shrinking(SimulatedDisk):
    """Takes ``left`` more bytes."""

    left = 0

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if not self.left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = super().write(fd, data[: self.left])
        self.left -= done
        return done


def test_what_fits_is_written_even_if_not_everything_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_AT_ONCE", 10)
    disk = Shrinking()
    aof = AofWriter(disk, "aof", "no")
    records = [b"<%04d>" % number for number in range(10)]
    for record in records:
        assert not aof.append([record])
    disk.left = 30
    assert not aof.retry()
    assert disk.names["aof"].data == b"".join(records[:4])
    assert aof.kept_size == 36
    disk.left = 1000
    assert aof.retry()
    assert disk.names["aof"].data == b"".join(records)


def test_with_always_what_waited_is_on_the_disk_when_it_is_written() -> None:
    disk = SimulatedDisk(seed=3)
    aof = AofWriter(disk, "aof", "always")
    disk.fail = {"write"}
    assert not aof.append([b"one"])
    disk.fail = set()
    assert aof.retry()
    assert disk.names["aof"].synced == 3


# ---- the server ---------------------------------------------------------------------------------


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr(rewriting, "RETRY_SECONDS", 0.01)
    stage = Stage(tmp_path)
    stage.disk.let_all()
    yield stage
    stage.close()


def fail(stage: Stage, code: int) -> None:
    stage.disk.failure = OSError(code, os.strerror(code))


@pytest.mark.parametrize("code", [*NO_ROOM, errno.EIO])
async def test_work_goes_on_from_the_first_failure_and_is_written_later(
    stage: Stage, code: int
) -> None:
    async with stage.running():
        wire = stage.wire()
        ids = [await wire.ask("ADDJOB", "q", "x", 0, "RETRY", 100) for _ in range(4)]
        once = await wire.ask("ADDJOB", "once", "x", 0, "RETRY", 0)
        fail(stage, code)
        assert await wire.ask("ACKJOB", ids[0]) == 1  # type: ignore[arg-type]
        refusal = await wire.ask("ADDJOB", "q", "x", 0)
        assert isinstance(refusal, hiredis.ReplyError)
        assert os.strerror(code) in str(refusal)
        assert await wire.ask("GETJOB", "NOHANG", "FROM", "once", "q") == [[b"q", ids[1], b"x"]]
        assert await wire.ask("ACKJOB", ids[1]) == 1  # type: ignore[arg-type]
        assert await wire.ask("NACK", ids[1]) == 0  # type: ignore[arg-type]
        assert stage.loaded() == {*ids, once}
        info = stage.persistence.info()
        assert info["aof_last_write_status"] == "err"
        assert bool(info["aof_buffer_length"]) == (code != errno.EIO)
        waiting = stage.wire()
        await waiting.send(("GETJOB", "FROM", "once"))
        assert await wire.ask("QLEN", "once") == 1
        stage.disk.failure = None
        assert await waiting.reply() == [[b"once", once, b"x"]]
        await until(lambda: stage.loaded() == set(ids[2:]))
        assert isinstance(await wire.ask("ADDJOB", "q", "x", 0), bytes)


async def test_an_at_most_once_job_that_is_taken_in_the_failing_turn_is_not_handed_out(
    stage: Stage,
) -> None:
    async with stage.running():
        wire = stage.wire()
        await wire.ask("ADDJOB", "once", "x", 0, "RETRY", 0)
        fail(stage, errno.EDQUOT)
        assert isinstance(await wire.ask("GETJOB", "FROM", "once"), hiredis.ReplyError)


async def test_at_the_bound_everything_is_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MOST_KEPT", 100)
    async with stage.running():
        wire = stage.wire()
        ids = [await wire.ask("ADDJOB", "q", "x", 0, "RETRY", 100) for _ in range(4)]
        fail(stage, errno.EDQUOT)
        for id in ids[:2]:
            assert await wire.ask("ACKJOB", id) == 1  # type: ignore[arg-type]
        for words in (("ACKJOB", ids[2]), ("GETJOB", "NOHANG", "FROM", "q")):
            assert isinstance(await wire.ask(*words), hiredis.ReplyError)  # type: ignore[arg-type]
        stage.disk.failure = None
        await until(lambda: not stage.bench.node.troubled)
        assert await wire.ask("ACKJOB", ids[2]) == 1  # type: ignore[arg-type]
        assert stage.loaded() == {ids[3]}


@pytest.mark.parametrize("code", [errno.EDQUOT, errno.EIO])
async def test_a_stop_writes_what_waits(stage: Stage, code: int) -> None:
    async with stage.running():
        wire = stage.wire()
        ids = [await wire.ask("ADDJOB", "q", "x", 0, "RETRY", 100) for _ in range(2)]
        fail(stage, code)
        assert await wire.ask("ACKJOB", ids[0]) == 1  # type: ignore[arg-type]
        assert stage.loaded() == set(ids)
    stage.disk.failure = None
    stage.persistence.close()
    assert stage.loaded() == {ids[1]}


async def test_the_file_is_switched_on_where_there_is_no_room(stage: Stage) -> None:
    async with stage.running():
        wire = stage.wire()
        id = await wire.ask("ADDJOB", "q", "x", 0, "RETRY", 0)
        stage.config.appendonly = False
        stage.persistence.rewriting.apply()
        fail(stage, errno.ENOSPC)
        stage.config.appendonly = True
        stage.persistence.rewriting.apply()
        await until(lambda: stage.bench.node.add_problem)
        assert isinstance(await wire.ask("ADDJOB", "q", "x", 0), hiredis.ReplyError)
        # Without a file there is none that could bring it back.
        assert await wire.ask("GETJOB", "NOHANG", "FROM", "q") == [[b"q", id, b"x"]]
        stage.disk.failure = None
        await until(lambda: not stage.bench.node.troubled)
        assert await wire.ask("ADDJOB", "q", "x", 0) in stage.loaded()
