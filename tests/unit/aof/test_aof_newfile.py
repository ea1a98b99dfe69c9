"""A file in the making, and the writer it is given to, while another thread works on either."""

import pytest
from aof_disk import SimulatedDisk

from disque_trio.aof.dump import NewFile
from disque_trio.aof.writer import EVERYSEC, AofWriter


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def writer(disk: SimulatedDisk) -> AofWriter:
    writer = AofWriter(disk, "aof", EVERYSEC)
    assert writer.append([b"old"])
    return writer


def test_two_files_in_the_making_do_not_meet(disk: SimulatedDisk) -> None:
    first, second = NewFile(disk, "aof"), NewFile(disk, "aof")
    first.append([b"1"])
    second.append([b"2"])
    first.abandon()
    second.take_name()
    assert bytes(disk.names["aof"].data) == b"2"
    assert list(disk.names) == ["aof"]


def test_a_file_that_is_given_up_stays_open_for_the_thread_that_works_on_it(
    disk: SimulatedDisk,
) -> None:
    new = NewFile(disk, "aof")
    new.hold()
    new.abandon()
    assert disk.names == {}
    new.append([b"more"])
    new.release()
    with pytest.raises(KeyError):
        new.append([b"closed"])
    new.abandon()  # once more is nothing


@pytest.mark.parametrize("failing", [False, True])
def test_a_sync_that_is_under_way_does_not_touch_the_file_that_took_over(
    disk: SimulatedDisk, writer: AofWriter, failing: bool
) -> None:
    sync = writer.sync_call()
    new = NewFile(disk, "aof")
    new.append([b"new"])
    writer.take_over(new)
    failure = None
    if failing:
        disk.fail = {"sync"}
        with pytest.raises(OSError, match="sync") as caught:
            sync()
        failure = caught.value
        disk.fail = set()
    else:
        sync()
    writer.sync_ended(failure)
    assert not writer.problem
    assert writer.append([b"+"])
    assert bytes(disk.names["aof"].data) == b"new+"
    assert writer.close()


def test_closing_during_a_sync_leaves_the_file_open_until_it_has_ended(
    disk: SimulatedDisk, writer: AofWriter
) -> None:
    sync = writer.sync_call()
    assert writer.close()
    sync()
    writer.sync_ended(None)
    with pytest.raises(KeyError):
        sync()


def test_a_failed_sync_makes_the_file_distrusted(disk: SimulatedDisk, writer: AofWriter) -> None:
    sync = writer.sync_call()
    disk.fail = {"sync"}
    with pytest.raises(OSError, match="sync") as caught:
        sync()
    writer.sync_ended(caught.value)
    assert writer.distrusted
    assert not writer.append([b"more"])
