"""The index that a node leaves when it stops is used if all of it fits; otherwise the append-only
file is read, whatever lies there. And the node may be killed while it writes it."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from disque_trio.aof.loader import Loader
from disque_trio.config import Config
from disque_trio.node import index_file as index_module
from disque_trio.node.core.queues.start_index import pack_block, read_blocks
from disque_trio.node.index_file import IndexFile
from disque_trio.node.page_files import PageFiles
from disque_trio.node.progress_file import ProgressFile
from tests.support.node_bench import Bench

JOBS = 100
LIMIT = 400_000
CANNOT = "the index of the jobs on disk cannot be used: the append-only file is read"
WITH = "started with the index of the jobs on disk: these were not read"


class KilledError(Exception):
    """The process is dead."""


class Process:
    """A node with its files in ``directory``, from its start; it is ``later`` by so many ms.

    Attributes:
        begin: where the append-only file was read from.
        said: what was logged.
    """

    clocks: ClassVar[dict[Path, int]] = {}

    def __init__(self, directory: Path, id: bytes = b"a" * 40, later: int = 1) -> None:
        self.directory = directory
        self.aof = directory / "aof"
        self.pages = directory / "pages"
        self.said: list[tuple[str, dict[str, Any]]] = []
        seed = self.clocks.get(directory, 0)
        self.bench = Bench(seed, maxmemory=LIMIT, id=id)
        self.bench.now = (seed or self.bench.now) + later
        node = self.node = self.bench.node
        settings = {
            "appendonly": True,
            "appendfilename": str(self.aof),
            "page-dir": str(self.pages),
            "paging": True,
            "maxmemory": LIMIT,
        }
        config = self.config = Config(settings)
        log: Any = SimpleNamespace(warning=self._say, notice=self._say)
        clock: Any = SimpleNamespace(now=lambda: self.bench.now)
        self.progress = ProgressFile(node, config, log)
        self.files = PageFiles(node, config, clock, log)
        self.files.apply()
        self.index = IndexFile(node, config, self.files, self.progress, log)
        self.index.index.least = 1
        node.paging.pages.most = 8
        node.paging.pages.above = 1
        node.now = self.bench.now
        self._load()

    def _load(self) -> None:
        node = self.node
        self.aof.touch()
        self.progress.load(False)
        self.index.prepare()
        for _ in self.index.steps(False):
            pass
        self.begin = self.index.begin
        for _ in Loader(str(self.aof), node, False, None, self.begin).steps():
            pass
        self.index.loaded()
        node.recovery.finish()
        node.journaling = True
        self.progress.start()
        self.index.started = True
        self.turn()

    def _say(self, text: str, **fields: Any) -> None:
        self.said.append((text, fields))

    def turn(self) -> None:
        """End a turn; orders are carried out at once."""
        with self.aof.open("ab") as file:
            file.write(b"".join(self.node.journal))
        self.node.journal.clear()
        self.node.commit()
        self.node.replied()
        now = self.clocks[self.directory] = self.bench.now = self.bench.now + 1
        due = self.node.next_wake()
        if due and due <= now:
            self.node.tick(now)

    def fill(self, count: int = JOBS) -> list[bytes]:
        """Add jobs; most of them go to disk."""
        ids = []
        for number in range(count):
            ids.append(self.bench.add("q", f"body{number}"))
            self.turn()
        assert self.node.paging.pages.jobs > count // 2
        return ids

    def stop(self) -> None:
        """Stop cleanly."""
        self.turn()
        self.progress.stop(False)
        self.index.write(self.bench.now)

    def take_all(self) -> list[bytes]:
        """Take and acknowledge all jobs."""
        found: list[bytes] = []
        while self.bench.number_queued():
            id = self.bench.get()
            assert id is not None
            found.append(id)
            self.bench("ACKJOB", id)
            self.turn()
        return found

    def reason(self) -> str:
        """Why the index could not be used."""
        return next((fields["reason"] for text, fields in self.said if text == CANNOT), "")


@pytest.fixture
def stopped(tmp_path: Path) -> Process:
    process = Process(tmp_path)
    process.ids = process.fill()  # type: ignore[attr-defined]
    process.stop()
    return process


def test_a_start_with_the_index_reads_nothing_else(stopped: Process, tmp_path: Path) -> None:
    process = Process(tmp_path)
    assert process.begin == process.aof.stat().st_size
    assert WITH in [text for text, _ in process.said]
    assert process.index.info() == {"aof_last_load_index": 1}
    assert not process.index.path.exists()
    assert process.take_all() == stopped.ids  # type: ignore[attr-defined]
    assert process.files.directory.exists()
    assert list(process.pages.iterdir()) == []


def test_it_can_be_used_again_and_again(stopped: Process, tmp_path: Path) -> None:
    ids = list(stopped.ids)  # type: ignore[attr-defined]
    for _ in range(4):
        process = Process(tmp_path)
        assert process.index.used
        for _ in range(7):
            id = process.bench.get()
            assert id == ids.pop(0)
            process.bench("ACKJOB", id)
            process.turn()
        process.bench("ACKJOB", ids.pop(40))
        ids += process.fill(30)
        process.stop()
    assert Process(tmp_path).take_all() == ids


def test_files_that_it_does_not_tell_of_go(stopped: Process, tmp_path: Path) -> None:
    (tmp_path / "pages" / "4711.seg").write_bytes(b"old")
    process = Process(tmp_path)
    assert process.index.used
    assert not (tmp_path / "pages" / "4711.seg").exists()


def _shorten(directory: Path) -> None:
    aof = directory / "aof"
    aof.write_bytes(aof.read_bytes()[: -len(b"*2\r\n$6\r\nDELJOB\r\n$40\r\n") - 42])


def _append(directory: Path) -> None:
    with (directory / "aof").open("ab") as aof:
        aof.write(b"*2\r\n$6\r\nDELJOB\r\n$40\r\nD-00000000-" + b"x" * 24 + b"-05a1\r\n")


def _rewrite(directory: Path) -> None:
    """Write the jobs in another order, as a rewrite does."""
    aof = directory / "aof"
    records = [b"*2" + record for record in aof.read_bytes().split(b"*2\r\n$7")[1:]]
    records = [record.replace(b"*2", b"*2\r\n$7", 1) for record in records]
    aof.write_bytes(b"".join(reversed(records)))


def _remove_half(directory: Path) -> None:
    for path in sorted((directory / "pages").glob("*.seg"))[::2]:
        path.unlink()


def _cut_file(directory: Path) -> None:
    path = min((directory / "pages").glob("*.seg"))
    os.truncate(path, path.stat().st_size - 1)


def _swap_files(directory: Path) -> None:
    one, other = sorted((directory / "pages").glob("?.seg"))[:2]
    one_data, other_data = one.read_bytes(), other.read_bytes()
    size = len(one_data)
    one.write_bytes(other_data[:size].ljust(size, b"x"))
    other.write_bytes(one_data.ljust(len(other_data), b"x")[: len(other_data)])


def _forget_progress(directory: Path) -> None:
    (directory / "aof.progress").unlink()


def _cut_index(directory: Path) -> None:
    path = directory / "pages" / "aof.index"
    os.truncate(path, path.stat().st_size // 2)


def _flip_bit(directory: Path) -> None:
    path = directory / "pages" / "aof.index"
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 16
    path.write_bytes(data)


def _other_version(directory: Path) -> None:
    path = directory / "pages" / "aof.index"
    path.write_bytes(path.read_bytes().replace(b"INDEX-1", b"INDEX-9", 1))


def _drop_block(directory: Path) -> None:
    path = directory / "pages" / "aof.index"
    with path.open("rb") as file:
        blocks = list(read_blocks(file.read))
    magic = path.read_bytes().split(b"\n")[0] + b"\n"
    path.write_bytes(magic + b"".join(pack_block(*block) for block in [*blocks[:3], *blocks[4:]]))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_append, "it goes with an append-only file of"),
        (_rewrite, "it goes with another append-only file"),
        (_remove_half, "No such file or directory"),
        (_cut_file, "it has another size"),
        (_swap_files, "a checksum is wrong"),
        (_forget_progress, "the progress file is missing"),
        (_cut_index, "is missing"),
        (_flip_bit, "a checksum is wrong"),
        (_other_version, "another version"),
        (_drop_block, "blocks are missing"),
    ],
)
def test_whatever_does_not_fit_is_said_and_nothing_is_lost(
    stopped: Process, tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    damage(tmp_path)
    process = Process(tmp_path)
    assert not process.begin
    if damage in (_append, _rewrite, _forget_progress):
        assert process.reason()  # the progress file may not fit, either
    else:
        assert reason in process.reason()
    assert not process.index.path.exists()
    if damage in (_append, _forget_progress):
        process.bench.advance(700)
    process.turn()
    assert sorted(process.take_all()) == sorted(stopped.ids)  # type: ignore[attr-defined]


def test_an_older_append_only_file_is_noticed(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.fill(50)
    process.stop()
    old = process.aof.read_bytes(), (tmp_path / "aof.progress").read_bytes()
    process = Process(tmp_path)
    process.fill(50)
    process.stop()
    process.aof.write_bytes(old[0])
    (tmp_path / "aof.progress").write_bytes(old[1])
    process = Process(tmp_path)
    assert "it goes with an append-only file of" in process.reason()
    assert process.bench.number_queued() == 50


def test_the_index_of_yesterday_is_noticed(tmp_path: Path) -> None:
    process = Process(tmp_path)
    ids = process.fill()
    process.stop()
    old = {path.name: path.read_bytes() for path in process.pages.iterdir()}
    process = Process(tmp_path)
    gone = [process.bench.get() for _ in range(50)]
    process.bench("ACKJOB", *[id for id in gone if id])
    process.stop()
    for name, data in old.items():
        (process.pages / name).write_bytes(data)
    process = Process(tmp_path)
    assert "it goes with an append-only file of" in process.reason()
    assert process.take_all() == ids[50:]


def test_the_files_of_another_node_are_noticed(stopped: Process, tmp_path: Path) -> None:
    process = Process(tmp_path, id=b"b" * 40)
    assert process.reason() == "it is that of another node"


def test_a_clock_that_was_set_back_is_noticed(stopped: Process, tmp_path: Path) -> None:
    process = Process(tmp_path, later=-3_600_000)
    assert process.reason() == "the clock was set back"
    assert process.take_all() == stopped.ids  # type: ignore[attr-defined]


def test_a_node_that_was_killed_leaves_no_index(stopped: Process, tmp_path: Path) -> None:
    process = Process(tmp_path)
    assert process.index.used
    process.bench.get()
    process.turn()
    process = Process(tmp_path)
    assert not process.index.used
    assert process.reason() == ""
    assert process.bench.number_queued() == JOBS - 1


def test_a_node_that_is_killed_while_it_loads_the_index_can_use_it_again(
    stopped: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(self: IndexFile) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(IndexFile, "loaded", dies)
        with pytest.raises(KilledError):
            Process(tmp_path)
    process = Process(tmp_path)
    assert process.index.used
    assert process.take_all() == stopped.ids  # type: ignore[attr-defined]


def test_a_kill_at_any_step_of_a_stop_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mortal:
        """Dies after so many ``left`` steps."""

        left = 0

        def step(self) -> None:
            self.left -= 1
            if not self.left:
                raise KilledError

    mortal = Mortal()
    whole = index_module.StartIndex.pack

    def pack(*args: Any) -> Any:
        for piece in whole(*args):
            mortal.step()
            yield piece[: len(piece) // 2]
            mortal.step()
            yield piece[len(piece) // 2 :]

    monkeypatch.setattr(index_module.StartIndex, "pack", pack)
    for owner, name in (
        (PageFiles, "finish"),
        (PageFiles, "_write"),
        (os, "fsync"),
        (Path, "replace"),
        (index_module, "sync_directory"),
    ):
        real = getattr(owner, name)

        def stepping(*args: Any, real: Any = real, **more: Any) -> Any:
            mortal.step()
            return real(*args, **more)

        monkeypatch.setattr(owner, name, stepping)
    mortal.left = 1 << 60
    ids = Process(tmp_path).fill()
    steps = used = 0
    while True:
        mortal.left = 1 << 60
        process = Process(tmp_path)
        used += process.index.used
        assert process.bench.number_queued() == JOBS, steps
        for segment in process.node.paging.pages.segments.values():  # some files are late
            segment.data = segment.data or (process.pages / f"{segment.number}.seg").read_bytes()
            (process.pages / f"{segment.number}.seg").unlink()
            process.node.paging.pages.writing += len(segment.data)
            break
        steps += 1
        mortal.left = steps
        try:
            process.stop()
        except KilledError:
            continue
        break
    mortal.left = 1 << 60
    process = Process(tmp_path)
    assert process.index.used
    assert steps - used > 30
    assert used  # all was done but that the directory was not synced
    assert process.take_all() == ids


def test_a_full_disk_leaves_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(tmp_path)
    ids = process.fill()

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(index_module.StartIndex, "pack", full)
        process.stop()
    assert not list(process.pages.glob("aof.*"))
    assert any("cannot be written" in text for text, _ in process.said)
    process = Process(tmp_path)
    assert process.reason() == ""
    assert process.take_all() == ids


@pytest.mark.parametrize("name", ["appendonly", "requeue_at_start"])
def test_there_is_no_index_where_a_start_would_not_use_it(
    stopped: Process, tmp_path: Path, name: str
) -> None:
    process = Process(tmp_path)
    setattr(process.config, name, False)
    process.stop()
    assert not process.index.path.exists()


def test_few_jobs_on_disk_need_no_index(stopped: Process, tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.index.index.least = 1000
    process.stop()
    assert not process.index.path.exists()
