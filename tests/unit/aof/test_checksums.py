"""Checksums beside a file say what in it is not as it was written, and never cry wolf."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.aof.check import main
from disque_trio.aof.checksums import (
    BLOCK,
    ENDING,
    ENTRY,
    MAGIC,
    CheckedFile,
    Mark,
    Sums,
    flipped_bit,
    pack_entries,
    pack_entry,
    read_sums,
)
from disque_trio.aof.dump import dump_all
from disque_trio.aof.format import AofError
from disque_trio.aof.loader import Loader
from disque_trio.aof.persistence import SCRUB_SECONDS, Persistence
from disque_trio.aof.writer import SETTLING_SECONDS, AofWriter
from disque_trio.config import Config
from disque_trio.process.logs import Logging
from tests.support.aof_disk import NoReplies, SimulatedDisk
from tests.support.node_bench import Bench


def recorded(count: int, body: str = "body") -> list[bytes]:
    """The records of ``count`` jobs."""
    bench = Bench()
    bench.node.journaling = True
    for number in range(count):
        bench.add("q", f"{body} {number}")
    return bench.node.journal


def checked(path: Path) -> CheckedFile:
    """The file, all of which has been read."""
    with path.open("rb") as file:
        found = CheckedFile(file.fileno(), read_sums(str(path)))
        found.read()
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with checksums for all of it."""
    path = tmp_path / "aof"
    data = b"".join(recorded(200))
    path.write_bytes(data)
    (tmp_path / f"aof{ENDING}").write_bytes(MAGIC + pack_entries(0, data))
    return path


def change(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip(path: Path, at: int, bit: int = 0) -> None:
    change(path, at, bytes((path.read_bytes()[at] ^ 1 << bit,)))


# ---- the file ------------------------------------------------------------------------------------


@given(st.binary(min_size=1, max_size=BLOCK), st.data())
def test_a_checksum_tells_which_bit_was_flipped(block: bytes, data: st.DataObject) -> None:
    _, checksum, _ = ENTRY.unpack(pack_entry(0, block))
    at, bit = data.draw(st.integers(0, len(block) - 1)), data.draw(st.integers(0, 7))
    flipped = bytearray(block)
    flipped[at] ^= 1 << bit
    assert flipped_bit(bytes(flipped), checksum) == (at, bit)


@given(st.lists(st.binary(min_size=1, max_size=3 * BLOCK), max_size=5))
def test_blocks_follow_each_other_and_end_at_pages(pieces: list[bytes]) -> None:
    data = MAGIC
    end = 0
    for piece in pieces:
        data += pack_entries(end, piece)
        end += len(piece)
    sums = Sums(data)
    assert sums.intact
    assert sums.end == end == sum(sums.sizes)
    for start, size, _ in sums.blocks():
        assert start // BLOCK == (start + size - 1) // BLOCK


def test_what_is_read_is_repaired_wherever_reading_begins_and_ends(path: Path) -> None:
    good = path.read_bytes()
    flip(path, BLOCK + 100)
    with path.open("rb") as opened:
        for at, size in ((0, len(good)), (BLOCK + 50, 100), (BLOCK + 100, 1), (BLOCK - 1, 2)):
            file = CheckedFile(opened.fileno(), read_sums(str(path)))
            assert file.pread(size, at) == good[at : at + size]
            assert file.marks == [Mark(BLOCK + 100, BLOCK + 101, 0)]


def test_two_flipped_bits_in_a_block_are_damage_of_all_of_it(path: Path) -> None:
    flip(path, BLOCK + 100)
    flip(path, BLOCK + 200)
    file = checked(path)
    assert file.marks == [Mark(BLOCK, 2 * BLOCK, -1)]
    assert file.found(BLOCK - 1, BLOCK) is None
    assert file.found(2 * BLOCK - 1, 2 * BLOCK) is not None


def test_no_single_bit_of_the_file_of_checksums_makes_damage(path: Path) -> None:
    beside = path.with_name(f"aof{ENDING}")
    size = len(beside.read_bytes())
    for at in range(size):
        flip(beside, at)
        file = checked(path)
        assert not file.marks
        assert file.doubtful < 0
        assert not read_sums(str(path)).intact
        flip(beside, at)


def test_neither_does_a_part_of_it(path: Path) -> None:
    beside = path.with_name(f"aof{ENDING}")
    good = beside.read_bytes()
    for length in range(len(good)):
        beside.write_bytes(good[:length])
        file = checked(path)
        assert not file.marks
        assert file.doubtful < 0


def test_an_older_or_another_file_is_not_damaged(path: Path) -> None:
    good = path.read_bytes()
    for size in range(0, len(good), 97):
        path.write_bytes(good[:size])  # checksums ahead of it
        assert (checked(path).marks, checked(path).doubtful) == ([], -1)
    for begin in (0, BLOCK, 3 * BLOCK + 7):
        path.write_bytes(good[:begin] + b"".join(recorded(300, "another")))
        assert checked(path).marks == []
        assert checked(path).doubtful == begin // BLOCK * BLOCK
    path.write_bytes(good + b"more")
    assert (checked(path).marks, checked(path).covered) == ([], len(good))


# ---- loading -------------------------------------------------------------------------------------


def test_a_torn_tail_is_torn_whatever_the_checksums_say(path: Path) -> None:
    good = path.read_bytes()
    records = recorded(200)
    bounds = {sum(map(len, records[:number])) for number in range(len(records) + 1)}
    for size in range(len(good) - 600, len(good)):
        path.write_bytes(good[:size])
        loader = Loader(str(path), Bench().node, False)
        if size in bounds:
            assert sum(1 for _ in loader.steps()) >= 0
        else:
            with pytest.raises(AofError) as caught:
                list(loader.steps())
            assert caught.value.truncated
        assert loader.damaged == []


def load(path: Path) -> tuple[Bench, Loader]:
    bench = Bench()
    loader = Loader(str(path), bench.node, False)
    list(loader.steps())
    bench.node.recovery.finish()
    return bench, loader


def test_only_jobs_in_a_damaged_block_are_left_out(path: Path) -> None:
    good = path.read_bytes()
    at = good.index(b"body 30")
    change(path, at, b"evil")
    (bench, loader), (whole, _) = load(path), _whole(path, good)
    there, all_of_them = (
        {job.id for job in bench.node.store.jobs.values()},
        {job.id for job in whole.node.store.jobs.values()},
    )
    block = at // BLOCK * BLOCK
    lost = all_of_them - there
    assert there < all_of_them
    assert lost == set(bench.node.recovery.lost)
    assert len(loader.damaged) == len(lost)
    for id in all_of_them:
        begin = good.index(id)
        assert (id in lost) or begin < block or begin >= block + BLOCK
    assert all(job.body != b"evil 30" for job in bench.node.store.jobs.values())


def _whole(path: Path, good: bytes) -> tuple[Bench, Loader]:
    other = path.with_name("whole")
    other.write_bytes(good)
    return load(other)


def test_damage_that_hides_where_records_end_stops_the_start(path: Path) -> None:
    change(path, BLOCK, bytes(BLOCK))
    with pytest.raises(AofError) as caught:
        load(path)
    assert not caught.value.truncated


def test_a_job_that_another_record_tells_of_is_not_lost(tmp_path: Path) -> None:
    bench = Bench()
    bench.node.journaling = True
    updated, ended = bench.add("q", "old"), bench.add("q", "old")
    block = b"".join(bench.node.journal)
    bench.node.journal.clear()
    bench("UPDATEJOB", updated, "BODY", "new")
    bench("ACKJOB", ended)
    data = block + b"".join(bench.node.journal)
    path = tmp_path / "aof"
    sums = MAGIC + pack_entries(0, block) + pack_entries(len(block), data[len(block) :])
    (tmp_path / f"aof{ENDING}").write_bytes(sums)
    path.write_bytes(data.replace(b"old", b"xyz"))
    after, loader = load(path)
    assert [job.body for job in after.node.store.jobs.values()] == [b"new"]
    assert after.node.recovery.lost == {}
    assert len(loader.damaged) == 2


# ---- disque-check-aof ----------------------------------------------------------------------------


def test_fix_flips_bits_back(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = path.read_bytes()
    for at, bit in ((100, 0), (BLOCK, 5), (len(good) - 1, 7)):
        flip(path, at, bit)
    damaged = path.read_bytes()
    assert main(["--fix", "--yes", str(path)]) == 0
    assert "This will flip 3 bits of the AOF back" in capsys.readouterr().out
    assert path.read_bytes() == good
    (backup,) = path.parent.glob("aof.bak-*")
    assert backup.read_bytes() == damaged
    assert main([str(path)]) == 0


def test_fix_cuts_the_file_at_a_damaged_job(path: Path) -> None:
    good = path.read_bytes()
    flip(path, 100)
    change(path, good.index(b"body 30"), b"evil")
    assert main(["--fix", "--yes", str(path)]) == 0
    left = path.read_bytes()
    assert good.startswith(left)
    assert BLOCK - 300 < len(left) <= good.index(b"body 30") // BLOCK * BLOCK
    assert main([str(path)]) == 0


def test_salvage_repairs_bits_and_leaves_damaged_jobs_out(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = path.read_bytes()
    flip(path, 100)
    change(path, good.index(b"body 30"), b"evil")
    salvaged = path.with_name("salvaged")
    assert main(["--salvage", str(salvaged), str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    damaged = [line for line in lines if line.startswith("Damaged: ")]
    (bench, _), (whole, _) = load(salvaged), _whole(path, good)
    kept = {job.id for job in bench.node.store.jobs.values()}
    for id in {job.id for job in whole.node.store.jobs.values()}:
        assert (id in kept) != any(f"LOADJOB of {id.decode()}" in line for line in damaged)
    for job in bench.node.store.jobs.values():
        known = whole.node.store.jobs.get(job.id)
        assert known is not None
        assert job.body == known.body


def test_a_file_without_checksums_or_with_others_is_said_to_be_so(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(path)]) == 0
    assert "Checksums" not in capsys.readouterr().out
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"".join(recorded(1)))
    assert main([str(path)]) == 0
    assert f"Checksums: for {size} of {path.stat().st_size} bytes" in capsys.readouterr().out
    path.write_bytes(b"".join(recorded(300, "another")))
    assert main([str(path)]) == 0
    assert "Checksums: not those of this file from offset 0 on" in capsys.readouterr().out


# ---- writing them --------------------------------------------------------------------------------


def cover(writer: AofWriter, now: float = 0.0) -> bool:
    """Let the writer add checksums; return whether there were any to add."""
    call = writer.cover_call(now)
    if call is None:
        return False
    try:
        call()
    except OSError:
        pass
    writer.sync_ended(None)
    return True


def matches(disk: SimulatedDisk, covered: int) -> bool:
    """Whether the file of checksums is that of the first ``covered`` bytes."""
    sums = Sums(bytes(disk.names[f"aof{ENDING}"].data))
    data = bytes(disk.names["aof"].data)
    return (
        sums.intact
        and sums.end == covered
        and all(
            ENTRY.unpack(pack_entry(start, data[start : start + size]))[1] == checksum
            for start, size, checksum in sums.blocks()
        )
    )


def test_only_what_is_on_disk_gets_checksums() -> None:
    disk = SimulatedDisk()
    writer = AofWriter(disk, "aof", "everysec")
    assert writer.append([b"x" * 10_000])
    assert not cover(writer)
    assert writer.sync()
    assert writer.append([b"y"])
    assert cover(writer)
    assert matches(disk, 10_000)
    assert writer.close()
    assert matches(disk, 10_001)


def test_without_syncs_they_come_when_the_system_has_written_it() -> None:
    disk = SimulatedDisk()
    writer = AofWriter(disk, "aof", "no")
    assert writer.append([b"first"])
    start = 1000.0
    assert not cover(writer, start)
    assert writer.append([b"second"])
    assert not cover(writer, start + SETTLING_SECONDS - 1)
    assert cover(writer, start + SETTLING_SECONDS)
    assert matches(disk, 5)


@pytest.mark.parametrize("seed", range(20))
def test_a_disk_that_is_full_now_and_then_costs_no_wrong_checksum(seed: int) -> None:
    disk = SimulatedDisk(seed)
    writer = AofWriter(disk, "aof", "always")
    dice = random.Random(seed)
    for _ in range(30):
        assert writer.append([b"x" * dice.randrange(1, 9000)])
        disk.fail = {"write"} if dice.random() < 0.5 else set()
        if disk.fail and dice.random() < 0.5:
            disk.fail.add("truncate")
        cover(writer)
        disk.fail = set()
    while cover(writer):
        pass
    assert matches(disk, writer.size)


def test_a_thread_that_adds_some_does_not_touch_those_of_the_file_that_took_over() -> None:
    disk = SimulatedDisk()
    bench = Bench()
    writer = AofWriter(disk, "aof", "always")
    assert writer.append([b"old" * 5000])
    call = writer.cover_call(0.0)
    assert call is not None
    bench.add()
    writer.take_over(dump_all(disk, "aof", bench.node))
    assert writer.sums.covered == 0
    call()
    writer.sync_ended(None)
    assert cover(writer)
    assert matches(disk, writer.size)
    assert writer.close()
    assert disk.descriptors() == set()


# ---- the scrub -----------------------------------------------------------------------------------


class Resting(NoReplies):
    """Nothing happens by itself, so the file may rest."""

    def when_stirred(self, wake: Callable[[], None]) -> None:
        pass


@pytest.mark.parametrize("where", ["the file", "its checksums"])
async def test_the_scrub_finds_damage_and_what_is_damaged_is_made_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, where: str
) -> None:
    autojump_clock.autojump_threshold = 0.05
    bench = Bench()
    logging = Logging(path=str(tmp_path / "log"))
    path = tmp_path / "aof"
    config = Config({"appendonly": True, "appendfilename": str(path), "aof-scrub-hours": 1})
    persistence = Persistence(bench.node, config, logging.log)
    persistence.file.open()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(persistence.run, Resting())
            ids = [bench.add("q", f"body {number}") for number in range(200)]
            assert persistence.turn()
            await trio.sleep(3600 + 3 * SCRUB_SECONDS)
            info = persistence.info()
            assert info["aof_damaged_places"] == 0
            assert int(info["aof_last_scrub_time"]) > 0
            assert info["aof_checksummed_bytes"] == path.stat().st_size
            if where == "the file":
                change(path, path.read_bytes().index(b"body 150"), b"evil")
            else:
                flip(path.with_name(f"aof{ENDING}"), len(MAGIC) + 100)
            await trio.sleep(3600 + 3 * SCRUB_SECONDS)
            assert persistence.info()["aof_damaged_places"] == int(where == "the file")
            assert not persistence.file.damaged
            nursery.cancel_scope.cancel()
    finally:
        persistence.close()
        logging.close()
    assert (ids[150].decode() in (tmp_path / "log").read_text()) == (where == "the file")
    after, loader = load(path)
    assert loader.sums.intact
    assert loader.damaged == []
    assert {job.id for job in after.node.store.jobs.values()} == set(ids)
