"""Nothing confirmed is lost, whatever the disk does."""

import pytest

from disque_trio.aof.dump import dump_all
from disque_trio.aof.writer import AofWriter
from tests.support.aof_disk import SimulatedDisk
from tests.support.node_bench import Bench


def records(count: int, start: int = 0) -> list[bytes]:
    return [b"<%06d>" % number for number in range(start, start + count)]


def test_what_was_appended_is_in_the_file_at_once() -> None:
    disk = SimulatedDisk()
    writer = AofWriter(disk, "aof", "no")
    assert writer.append(records(3))
    assert disk.names["aof"].data == b"<000000><000001><000002>"
    assert writer.size == 24


def test_with_always_it_is_on_the_disk_when_append_returns() -> None:
    disk = SimulatedDisk()
    writer = AofWriter(disk, "aof", "always")
    assert writer.append(records(2))
    assert disk.names["aof"].synced == 16


def test_a_full_disk_leaves_no_half_record_and_what_failed_goes_first_later() -> None:
    disk = SimulatedDisk(seed=3)
    writer = AofWriter(disk, "aof", "everysec")
    assert writer.append(records(1))
    disk.fail = {"write"}
    assert not writer.append(records(2, start=1))
    assert writer.problem
    assert not writer.append(records(1, start=3))
    assert disk.names["aof"].data == b"<000000>"
    assert not writer.retry()
    disk.fail = set()
    assert writer.retry()
    assert not writer.problem
    assert disk.names["aof"].data == b"".join(records(4))


def test_after_a_failed_sync_the_file_is_not_trusted_any_more() -> None:
    disk = SimulatedDisk()
    writer = AofWriter(disk, "aof", "always")
    disk.fail = {"sync"}
    assert not writer.append(records(1))
    disk.fail = set()
    assert not writer.retry()
    assert not writer.append(records(1, start=1))
    assert writer.distrusted


def test_a_file_that_cannot_be_cut_back_is_not_trusted_either() -> None:
    disk = SimulatedDisk(seed=1)
    writer = AofWriter(disk, "aof", "no")
    disk.fail = {"write", "truncate"}
    assert not writer.append(records(1))
    assert writer.distrusted


def test_a_dump_takes_its_place() -> None:
    disk = SimulatedDisk()
    writer = AofWriter(disk, "aof", "always")
    disk.fail = {"sync"}
    assert not writer.append(records(1))
    disk.fail = set()
    writer.take_over(dump_all(disk, "aof", Bench().node))
    assert writer.append(records(1, start=5))
    assert disk.names["aof"].data == b"<000005>"
    assert writer.close()


def test_a_dump_whose_name_may_be_lost_is_not_trusted() -> None:
    disk = SimulatedDisk()
    writer = AofWriter(disk, "aof", "always")
    disk.fail = {"sync_directory"}
    writer.take_over(dump_all(disk, "aof", Bench().node))
    assert writer.distrusted
    assert not writer.append(records(1))


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_closing_brings_everything_to_the_disk(policy: str) -> None:
    disk = SimulatedDisk()
    writer = AofWriter(disk, "aof", policy)
    writer.append(records(4))
    assert writer.close()
    assert disk.names["aof"].synced == 32
