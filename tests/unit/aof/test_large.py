"""Large records, written by another thread, on a failing disk."""

import pytest

from disque_trio.aof.dump import PIECE
from disque_trio.aof.writer import LARGE, MANY, SYNC_AT_ONCE, AofWriter, is_large
from tests.support.aof_disk import SimulatedDisk

PATH = "aof"
RECORDS = [b"first", b"x" * (2 * PIECE + 3), b"", b"last"]
WHOLE = b"".join(RECORDS)


class WholeWrites(SimulatedDisk):
    """Writes everything at once, and records the size of each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[int] = []

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self.writes.append(len(data))
        self._open[fd].data += data
        return len(data)


def file(disk: SimulatedDisk) -> bytes:
    return bytes(disk.names[PATH].data)


def test_one_large_record_or_very_many_count_as_large() -> None:
    assert not is_large([])
    assert not is_large([bytes(LARGE)])
    assert is_large([b"", bytes(LARGE + 1)])
    assert not is_large([bytes(1000)] * (MANY // 1000))
    assert is_large([bytes(1000)] * (MANY // 1000 + 1))


@pytest.mark.parametrize("size", [1, PIECE // 3, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 1])
def test_small_records_are_written_together_and_large_ones_in_pieces(size: int) -> None:
    disk = WholeWrites()
    records = [bytes([number]) * size for number in range(10)]
    writer = AofWriter(disk, PATH, "no")
    large = writer.large_append(records)
    large.run()
    assert writer.append_ended(large)
    assert file(disk) == b"".join(records)
    assert max(disk.writes) <= PIECE
    assert len(disk.writes) <= 2 * (10 * size // PIECE + 1)


@pytest.mark.parametrize(("size", "there"), [(SYNC_AT_ONCE, False), (SYNC_AT_ONCE + 1, True)])
def test_data_that_would_slow_a_later_sync_is_synced_at_once(size: int, there: bool) -> None:
    disk = WholeWrites()
    writer = AofWriter(disk, PATH, "everysec")
    large = writer.large_append([bytes(size)])
    large.run()
    assert writer.append_ended(large)
    assert (disk.names[PATH].synced == size) == there
    assert writer.unsynced != there


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_it_is_appended(policy: str) -> None:
    disk = SimulatedDisk()
    writer = AofWriter(disk, PATH, policy)
    assert writer.append([b"before"])
    large = writer.large_append(RECORDS)
    large.run()
    assert writer.append_ended(large)
    assert file(disk) == b"before" + WHOLE
    assert writer.size == len(file(disk))
    assert (disk.names[PATH].synced == writer.size) == (policy == "always")
    assert writer.append([b"after"])
    assert file(disk).endswith(b"lastafter")


def test_writeback_starts_with_each_piece() -> None:
    disk = SimulatedDisk()
    writer = AofWriter(disk, PATH, "everysec")
    large = writer.large_append(RECORDS)
    large.run()
    assert disk.started[0][0] == 0
    assert all(a[1] == b[0] for a, b in zip(disk.started, disk.started[1:], strict=False))
    assert len(WHOLE) - disk.started[-1][1] < 4096


@pytest.mark.parametrize("seed", range(10))
def test_when_it_fails_the_file_is_cut_back_and_it_is_written_later(seed: int) -> None:
    disk = SimulatedDisk(seed)
    writer = AofWriter(disk, PATH, "everysec")
    assert writer.append([b"before"])
    large = writer.large_append(RECORDS)
    disk.fail = {"write"}
    large.run()
    assert not writer.append_ended(large)
    assert writer.problem
    assert file(disk) == b"before"
    assert not writer.append([b"after"])
    disk.fail = set()
    assert writer.retry()
    assert file(disk) == b"before" + WHOLE + b"after"


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_after_a_failed_sync_the_file_is_not_trusted(policy: str) -> None:
    disk = SimulatedDisk()
    writer = AofWriter(disk, PATH, policy)
    large = writer.large_append([*RECORDS, bytes(SYNC_AT_ONCE)])
    disk.fail = {"sync"}
    large.run()
    assert writer.append_ended(large) == (policy != "always")
    assert writer.distrusted
    assert not writer.retry()


def test_a_sync_of_another_thread_that_failed_meanwhile_counts() -> None:
    disk = SimulatedDisk()
    writer = AofWriter(disk, PATH, "everysec")
    assert writer.append([b"before"])
    sync = writer.sync_call()
    large = writer.large_append(RECORDS)
    disk.fail = {"sync"}
    with pytest.raises(OSError, match="sync") as failure:
        sync()
    disk.fail = set()
    writer.sync_ended(failure.value)
    large.run()
    assert not writer.append_ended(large)
    assert writer.kept == []  # a new file will have them, from memory


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_in_the_middle_leaves_whole_what_was_synced_before(seed: int) -> None:
    disk = SimulatedDisk(seed)
    writer = AofWriter(disk, PATH, "everysec")
    disk.sync_directory(PATH)
    assert writer.append([b"before"])
    assert writer.sync()
    large = writer.large_append(RECORDS)
    disk.fail = {"write"}  # after part of it
    large.run()
    left = disk.crash(PATH)
    assert left.startswith(b"before")
    assert (b"before" + WHOLE).startswith(left)
