"""The progress file of a node, on a disk without much room."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_trio.aof.disk import Disk
from disque_trio.config import Config
from disque_trio.node import progress_file
from disque_trio.node.progress_file import RESERVE, ProgressFile
from disque_trio.process.logs import Logging
from disque_trio.protocol.progress import MAGIC, ProgressReader
from tests.support.node_bench import Bench


class Stage:
    """A node, and its progress file in ``where``."""

    def __init__(self, where: Path) -> None:
        self.bench = Bench()
        self.aof = where / "aof"
        self.aof.touch()
        self.path = where / "aof.progress"
        self.logging = Logging(path=str(where / "log"))
        config = Config({"appendonly": True, "appendfilename": str(self.aof)})
        self.file = ProgressFile(self.bench.node, config, self.logging.log)
        self.file.start()

    def deliver(self) -> bytes:
        """Give a job to a client, and write that down."""
        id = self.bench.add()
        assert self.bench.get() == id
        self.bench.now += 2
        self.bench.node.now = self.bench.now
        self.bench.node.commit()
        self.bench.node.replied()
        return id

    def known(self) -> set[bytes]:
        """The jobs that the file knows."""
        found = ProgressReader()
        with self.path.open("rb") as file:
            found.read(file)
        return set(found.jobs)

    def reserved(self) -> int:
        fd = os.open(self.path, os.O_RDONLY)
        found = Disk().allocated(fd)
        os.close(fd)
        return found


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.file.close()
    stage.logging.close()


def test_a_rewrite_that_fails_leaves_the_old_file(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_file, "SMALL", 0)
    Path(f"{stage.path}.tmp").mkdir()  # so there cannot be a new file
    ids = {stage.deliver() for _ in range(10)}
    assert stage.known() == ids
    assert stage.file.info()["progress_file_status"] == "ok"


def test_it_has_a_reserve_that_grows_with_the_jobs(stage: Stage) -> None:
    before = stage.reserved()
    if before < RESERVE:
        pytest.skip("the file system reserves nothing")
    stage.bench.node.store.jobs.count += 100_000
    stage.file.find_room()
    stage.bench.node.store.jobs.count -= 100_000
    assert stage.reserved() >= before + 80 * 100_000 - RESERVE
    stage.file.stop(False)
    assert stage.reserved() < RESERVE


def test_a_rewrite_goes_on_job_by_job_however_many_there_are(stage: Stage) -> None:
    bench = stage.bench
    ids = [bench.add() for _ in range(3_000)]  # so that there are shards with several
    assert {*bench.get_all("q")} == {*ids}
    new = progress_file._NewFile(str(stage.path))
    new.append(MAGIC)
    node = bench.node
    before = os.fstat(new.fd).st_size
    longest = steps = 0
    ended = set()
    while not new.complete:
        new.append_jobs(node, 2)
        size = os.fstat(new.fd).st_size
        longest = max(longest, size - before)
        before = size
        steps += 1
        if steps % 100 == 0:
            ended.add(id := ids[steps])
            bench("ACKJOB", id)
    os.close(new.take_name())
    assert longest < 200  # two records, and a block
    known = stage.known()
    assert {*ids} - ended <= known <= {*ids}
