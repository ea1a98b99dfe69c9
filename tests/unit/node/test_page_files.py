"""The files of jobs on disk: directories that are missing, descriptors that are, and what the
append-only file says meanwhile."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from disque_trio.config import Config
from disque_trio.node.page_files import PageFiles
from disque_trio.node.progress_file import ProgressFile
from disque_trio.protocol.progress import ProgressReader
from disque_trio.protocol.serialjob import loadjob
from tests.support.node_bench import Bench

JOBS = 100


class Stage:
    """A node with its files in ``directory``, and queues that lie on disk."""

    def __init__(self, directory: Path, limit: int = 200_000) -> None:
        self.aof = directory / "aof"
        self.pages = directory / "pages"
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.bench = Bench(maxmemory=limit)
        self.node = self.bench.node
        self.node.journaling = True
        self.config = Config(
            {
                "appendonly": True,
                "appendfilename": str(self.aof),
                "page-dir": str(self.pages),
                "paging": True,
                "maxmemory": limit,
            }
        )
        self.log: Any = SimpleNamespace(warning=self._say, notice=self._say)
        clock: Any = SimpleNamespace(now=lambda: self.bench.now)
        self.files = PageFiles(self.node, self.config, clock, self.log)
        self.files.prepare()
        self.files.apply()
        self.node.paging.pages.most = 8
        self.node.paging.pages.above = 1
        self.ids: list[bytes] = []

    def _say(self, text: str, **fields: Any) -> None:
        self.said.append((text, fields))

    def turn(self) -> None:
        """End a turn; orders are carried out at once."""
        with self.aof.open("ab") as file:
            file.write(b"".join(self.node.journal))
        self.node.journal.clear()
        self.node.commit()
        self.node.replied()
        due = self.node.next_wake()
        if due and due <= self.bench.now:
            self.node.tick(self.bench.now)

    def fill(self) -> None:
        for number in range(JOBS):
            self.ids.append(self.bench.add("q", f"body{number}"))
            self.turn()
        assert self.node.paging.pages.jobs > JOBS // 2

    def take_all(self) -> list[bytes]:
        found: list[bytes] = []
        while self.bench.number_queued():
            id = self.bench.get()
            assert id is not None
            found.append(id)
            self.turn()
        return found

    def names(self) -> set[str]:
        return {path.name for path in self.pages.iterdir()}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_the_files_of_an_earlier_process_go_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    for name in ("1.seg", "77.seg", "notes.txt", "x.seg"):
        (tmp_path / "pages" / name).write_bytes(b"old")
    stage = Stage(tmp_path)
    assert stage.names() == {"notes.txt", "x.seg"}
    assert stage.said == [
        ("removed the files of jobs that an earlier process had on disk", {"files": 2})
    ]


def test_what_cannot_be_removed_does_not_keep_a_node_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pages" / "2000.seg").mkdir(parents=True)
    (tmp_path / "pages" / "3.seg").write_bytes(b"old")
    stage = Stage(tmp_path)
    assert stage.names() == {"2000.seg"}
    text = "cannot remove all files of jobs that an earlier process had on disk"
    reasons = [fields.get("reason") for said, fields in stage.said if said == text]
    assert reasons == ["Is a directory"]
    stage.fill()
    assert stage.take_all() == stage.ids

    def refused(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refused)
    stage.said.clear()
    stage.files.prepare()
    assert [fields["reason"] for _, fields in stage.said] == ["Permission denied"]


def test_jobs_come_back_and_leave_no_file(stage: Stage) -> None:
    stage.fill()
    assert stage.names()
    assert stage.take_all() == stage.ids
    assert not stage.names()


def test_the_space_of_the_disk_is_known_while_jobs_may_go_there(stage: Stage) -> None:
    free, size = stage.files.space()
    assert 0 < free <= size
    stage.node.paging.set_above(None)
    assert stage.files.space() == (0, 0)


def test_a_directory_that_is_gone_is_made_again(stage: Stage) -> None:
    stage.pages.rmdir()
    stage.fill()
    assert stage.take_all() == stage.ids
    assert stage.node.paging.pages.problem == ""


def test_a_directory_that_cannot_be_made_is_a_problem_until_it_can(tmp_path: Path) -> None:
    (tmp_path / "pages").write_bytes(b"a file")
    stage = Stage(tmp_path)
    assert stage.files.problem == "File exists"
    pages = stage.node.paging.pages
    for _ in range(JOBS):
        stage.ids.append(stage.bench.add("q", "body"))
        stage.turn()
    assert pages.jobs == 0
    assert pages.problem == "Not a directory"
    (tmp_path / "pages").unlink()
    stage.bench.advance(2)
    stage.turn()
    assert pages.jobs
    assert stage.files.problem == pages.problem == ""
    assert stage.take_all() == stage.ids


def test_a_record_that_is_being_written_hides_none_before_it(stage: Stage) -> None:
    stage.fill()
    with stage.aof.open("ab") as file:
        file.write(b"*2\r\n$7\r\nLOADJOB\r\n$300\r\nhalf")
    for path in stage.pages.iterdir():
        path.write_bytes(b"")
    assert [stage.bench.get() for _ in stage.ids] == stage.ids
    assert stage.node.paging.pages.lost == 0


def test_a_damaged_record_hides_no_other(stage: Stage) -> None:
    stage.fill()
    content = bytearray(stage.aof.read_bytes())
    content[content.index(stage.ids[50]) - 4] ^= 1  # its length
    stage.aof.write_bytes(content)
    for path in stage.pages.iterdir():
        path.write_bytes(b"")
    assert stage.take_all() == stage.ids[:50] + stage.ids[51:]
    assert stage.node.paging.pages.lost == 1


def test_jobs_of_damaged_files_are_in_the_progress_file_of_a_stop(stage: Stage) -> None:
    maker = Bench(seed=7)
    for _ in range(JOBS):
        id = maker.add("q", "body", "RETRY", 50)
        job = maker.node.store.jobs.get(id)
        assert job is not None
        data = maker.node.aof_codec.serialize(job)
        stage.node.journal.append(loadjob(data))
        stage.node.load_record([b"LOADJOB", data], False)
        assert stage.bench("ENQUEUE", id) == 1
        stage.turn()
        stage.ids.append(id)
    assert stage.node.paging.pages.jobs > JOBS // 2
    progress = ProgressFile(stage.node, stage.config, stage.log)
    progress.start()
    for path in stage.pages.iterdir():
        path.write_bytes(b"")
    progress.stop(False)
    found = ProgressReader()
    with stage.aof.with_name("aof.progress").open("rb") as file:
        found.read(file)
    assert set(found.jobs) == set(stage.ids)
    assert stage.node.paging.pages.lost == 0


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """While it is not empty, no file can be opened, for the reason in it."""
    short: list[str] = []
    real_open, real_method = os.open, Path.open

    def fail() -> None:
        if short:
            raise OSError(errno.EMFILE, short[0])

    def open_(path: Any, *more: Any, **others: Any) -> int:
        fail()
        return real_open(path, *more, **others)

    def method(path: Path, *more: Any, **others: Any) -> Any:
        fail()
        return real_method(path, *more, **others)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(Path, "open", method)
    return short


def test_a_lack_of_descriptors_loses_no_job(stage: Stage, short: list[str]) -> None:
    stage.fill()
    short.append("Too many open files")
    assert stage.bench.ask(stage.bench.client(), "PING")
    client = stage.bench.client()
    stage.bench.send(client, "SHOW", stage.ids[50])
    assert client.blocked
    short.clear()
    stage.files.try_again()
    stage.turn()
    assert stage.node.paging.pages.lost == 0
    assert stage.bench.replies(client)
    assert stage.take_all() == stage.ids


def test_it_is_tried_again_after_a_while(stage: Stage, short: list[str]) -> None:
    stage.fill()
    client = stage.bench.client()

    async def main() -> None:
        engine: Any = SimpleNamespace(after_node=stage.node.replied)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.files.run, engine)
            await wait_all_tasks_blocked()
            short.append("Too many open files")
            stage.bench.send(client, "SHOW", stage.ids[50])
            while not stage.files._later:
                await trio.sleep(0)
            short.clear()
            while stage.node.paging.pages.find(stage.ids[50]):
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(rate=100))
    assert stage.node.paging.pages.lost == 0
