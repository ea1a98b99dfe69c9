"""A paused queue is still paused after a restart, however its file was written."""

import io
import tempfile
from pathlib import Path

import pytest

from disque_trio.aof.check import main as check_aof
from disque_trio.aof.compact import compact
from disque_trio.aof.dump import Dump, dump_all
from disque_trio.aof.format import AofError
from disque_trio.aof.loader import Loader
from tests.support.aof_disk import SimulatedDisk
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

RECORD = b"*3\r\n$5\r\nPAUSE\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"
STATES = ["in", "out", "all"]
NAMES = [b"q", b"", b"\r\n\0 a", "Łódź".encode(), b"*2\r\n$7\r\nLOADJOB\r\n$5", b"n" * 5000]


def record(queue: bytes, state: bytes) -> bytes:
    return RECORD % (len(queue), queue, len(state), state)


def journal_of(bench: Bench) -> bytes:
    return b"".join(bench.node.journal)


def load(data: bytes, directory: Path) -> Bench:
    path = directory / "aof"
    path.write_bytes(data)
    bench = Bench()
    bench.node.now = bench.now
    bench.node.journaling = True
    for _ in Loader(str(path), bench.node, False).steps():
        pass
    assert bench.node.journal == []
    return bench


def dumped(bench: Bench) -> bytes:
    disk = SimulatedDisk()
    dump_all(disk, "aof", bench.node).take_name()
    return bytes(disk.names["aof"].data)


def compacted(data: bytes, bench: Bench) -> bytes:
    with tempfile.TemporaryFile() as out:
        compact(io.BytesIO(data), len(data), out, bench.now // 1000)
        out.seek(0)
        return out.read()


@pytest.fixture
def before() -> Bench:
    bench = Bench()
    bench.node.journaling = True
    return bench


# ---- writing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_a_pause_is_noted_as_the_command_that_c_nodes_load(before: Bench, state: str) -> None:
    before("PAUSE", "q", state)
    assert journal_of(before) == record(b"q", state.encode())


def test_only_what_changes_a_pause_is_noted(before: Bench) -> None:
    before("PAUSE", "q", "none")
    before("PAUSE", "q", "state", "bcast")
    assert journal_of(before) == b""
    before("PAUSE", "q", "in")
    before("PAUSE", "q", "in", "bcast")
    before("PAUSE", "q", "state")
    before("PAUSE", "q", "in", "out")
    before("PAUSE", "q", "none")
    before("PAUSE", "q", "none")
    assert journal_of(before) == b"".join(record(b"q", s) for s in (b"in", b"all", b"none"))


def test_a_pause_that_another_node_sent_is_noted(tmp_path: Path) -> None:
    mesh = Mesh(2)
    mesh[1].node.journaling = True
    mesh[0]("PAUSE", "q", "out", "BCAST")
    mesh[0]("PAUSE", "r", "in", "BCAST")
    mesh[0]("PAUSE", "r", "none", "BCAST")
    mesh.settle()
    after = load(journal_of(mesh[1]), tmp_path)
    assert [after("PAUSE", name, "state") for name in ("q", "r")] == [b"out", b"none"]


def test_a_pause_that_is_not_in_the_file_is_not_confirmed(before: Bench) -> None:
    before.send(before.me, "PAUSE", "q", "in")
    before.node.roll_back(b"-MISCONF no\r\n")
    assert before.raw(before.me) == b"-MISCONF no\r\n"


def test_a_pause_is_refused_while_the_file_cannot_be_written(before: Bench) -> None:
    before.node.set_trouble(False, "No space left on device")
    for _ in range(2):
        before.send(before.me, "PAUSE", "q", "in")
        assert before.raw(before.me).startswith(b"-MISCONF ")
    assert before("PAUSE", "q", "state") == b"none"
    before.node.set_trouble(False, "")
    assert before("PAUSE", "q", "in") == b"in"


# ---- loading ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_pause_comes_back_from_each_kind_of_file(
    before: Bench, tmp_path: Path, name: bytes
) -> None:
    before("PAUSE", name, "in")
    before("PAUSE", name, "all")
    journal = journal_of(before)
    for data in (journal, dumped(before), compacted(journal, before)):
        after = load(data, tmp_path)
        assert after("PAUSE", name, "state") == b"all"
        assert after.node.memory.used == after.counted_memory()
    assert dumped(before) == compacted(journal, before) == record(name, b"all")


def test_an_ended_pause_is_not_in_a_new_file(before: Bench) -> None:
    before("PAUSE", "q", "in")
    before("PAUSE", "q", "none")
    before("PAUSE", "never", "state")
    assert dumped(before) == compacted(journal_of(before), before) == b""
    before("PAUSE", "q", "out")
    assert dumped(before) == compacted(journal_of(before), before) == record(b"q", b"out")


def test_a_paused_queue_without_jobs_is_kept_for_ever(before: Bench, tmp_path: Path) -> None:
    before("PAUSE", "q", "in")
    after = load(journal_of(before), tmp_path)
    after.now += 10_000_000
    after.node.cron(after.now)
    assert after("PAUSE", "q", "state") == b"in"
    after("PAUSE", "q", "none")
    after.now += 10_000_000
    after.node.cron(after.now)
    assert after("QSTAT", "q") is None


def test_jobs_of_a_paused_queue_are_loaded_and_wait(before: Bench, tmp_path: Path) -> None:
    id = before.add("q", "body", "RETRY", 1)
    before("PAUSE", "q", "out")
    after = load(journal_of(before), tmp_path)
    after.advance(3)
    assert after("QLEN", "q") == 1
    assert after.get() is None
    after("PAUSE", "q", "none")
    assert after.get() == id


def test_flushing_ends_all_pauses(before: Bench) -> None:
    before("PAUSE", "q", "all")
    before("DEBUG", "FLUSHALL")
    assert journal_of(before) == dumped(before) == b""
    assert before("PAUSE", "q", "state") == b"none"


def test_a_pause_that_changes_during_a_dump_is_in_the_new_file_as_it_ended(tmp_path: Path) -> None:
    for changed_after in range(12):
        bench = Bench()
        bench.node.journaling = True
        for number in range(50):
            bench("PAUSE", f"q{number}", "in")
        bench.node.journal.clear()
        disk = SimulatedDisk()
        dump = Dump(disk, "aof", bench.node)
        steps = 0
        while not dump.complete:
            if steps == changed_after:
                for number in range(25):
                    bench("PAUSE", f"q{number}", "none" if number % 2 else "all")
                dump.append(bench.node.journal)
                bench.node.journal.clear()
            dump.step(5)
            steps += 1
        dump.append(bench.node.journal)
        assert steps > 5
        after = load(bytes(disk.names[dump.temporary].data), tmp_path)
        for number in range(50):
            name = f"q{number}"
            assert after("PAUSE", name, "state") == bench("PAUSE", name, "state")


# ---- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        [b"PAUSE", b"q"],
        [b"PAUSE", b"q", b"sideways"],
        [b"PAUSE", b"q", b"in", b"out"],
        [b"PAUSE"],
    ],
)
def test_an_invalid_pause_is_refused_by_every_reader(
    before: Bench, tmp_path: Path, bad: list[bytes]
) -> None:
    good = record(b"q", b"in")
    data = good + b"*%d\r\n" % len(bad) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in bad)
    with pytest.raises(AofError) as failure:
        load(data, tmp_path)
    assert failure.value.offset == len(good)
    with pytest.raises(AofError):
        compacted(data, before)
    assert check_aof([str(tmp_path / "aof")]) == 1


def test_the_check_counts_pauses(
    before: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "aof"
    before.add()
    for name in NAMES:
        before("PAUSE", name, "in")
    path.write_bytes(journal_of(before) + b"*3\r\n$5\r\npause\r\n$1\r\nx\r\n$4\r\nNone\r\n")
    assert check_aof([str(path)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Good records: jobs=1, queues=1, deletes=0, pauses={len(NAMES) + 1}\n")
    assert shown.endswith("AOF is valid\n")


def test_pauses_behind_damage_are_found_and_salvaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, saved = tmp_path / "aof", tmp_path / "saved"
    good = record(b"q", b"in") + record(b"r", b"out")
    path.write_bytes(record(b"p", b"all") + b"garbage\r\n" + good)
    assert check_aof([str(path)]) == 1
    assert "among them good records: jobs=0, deletes=0, pauses=2." in capsys.readouterr().out
    assert check_aof(["--salvage", str(saved), str(path)]) == 0
    assert "Salvaged 3 records" in capsys.readouterr().out
    assert saved.read_bytes() == record(b"p", b"all") + good
