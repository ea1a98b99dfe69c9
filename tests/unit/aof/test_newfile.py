"""A new file, and the writer that takes it over, while another thread works on either."""

import pytest

from disque_trio.aof.dump import NewFile
from disque_trio.aof.writer import EARLY_BYTES, EVERYSEC, AofWriter
from tests.support.aof_disk import SimulatedDisk


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
    new.abandon()  # a second time does nothing


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


def takes_over(disk: SimulatedDisk, writer: AofWriter) -> None:
    """Have a file with "new" (synced) and "+" (not synced) take the name."""
    new = NewFile(disk, "aof")
    new.append([b"new"])
    new.sync()
    new.append([b"+"])
    writer.take_over(new, soon=True)


def test_a_file_can_take_the_name_without_waiting_for_the_disk(
    disk: SimulatedDisk, writer: AofWriter
) -> None:
    disk.fail = {"sync_directory"}
    takes_over(disk, writer)
    assert disk.names["aof"].synced == len(b"new")
    assert writer.unsynced
    assert writer.unnamed
    assert not writer.problem


@pytest.mark.parametrize("threaded", [False, True])
def test_the_next_sync_is_of_the_file_and_of_its_name(
    disk: SimulatedDisk, writer: AofWriter, threaded: bool
) -> None:
    takes_over(disk, writer)
    if threaded:
        writer.sync_call()()
        assert writer.unnamed  # until the other thread has reported
        writer.sync_ended(None)
    else:
        assert writer.sync()
    assert not writer.unnamed
    assert not writer.unsynced
    assert {disk.crash("aof") for _ in range(20)} == {b"new+"}
    disk.fail = {"sync_directory"}
    assert writer.append([b"more"])
    assert writer.sync()  # the name is on the disk


def test_a_name_that_cannot_be_synced_makes_the_file_distrusted(
    disk: SimulatedDisk, writer: AofWriter
) -> None:
    takes_over(disk, writer)
    disk.fail = {"sync_directory"}
    sync = writer.sync_call()
    with pytest.raises(OSError, match="sync_directory") as caught:
        sync()
    writer.sync_ended(caught.value)
    assert writer.distrusted


def test_a_sync_of_the_old_file_says_nothing_of_the_new_name(
    disk: SimulatedDisk, writer: AofWriter
) -> None:
    sync = writer.sync_call()
    takes_over(disk, writer)
    sync()
    writer.sync_ended(None)
    assert writer.unnamed


def test_the_disk_begins_early_with_whole_pages_and_with_each_once(
    disk: SimulatedDisk, writer: AofWriter
) -> None:
    assert writer.early_call() is None
    writer.append([b"x" * (EARLY_BYTES + 5000)])
    begin = writer.early_call()
    assert begin is not None
    begin()
    writer.sync_ended(None)
    assert disk.started == [(0, EARLY_BYTES + 4096)]
    assert writer.early_call() is None
    writer.append([b"x" * EARLY_BYTES])
    begin = writer.early_call()
    assert begin is not None
    begin()
    writer.sync_ended(None)
    assert disk.started[1:] == [(EARLY_BYTES + 4096, 2 * EARLY_BYTES + 4096)]
    assert writer.unsynced  # writeback has begun, nothing is promised


def test_a_file_that_is_replaced_meanwhile_stays_open_for_the_disk_to_begin_with(
    disk: SimulatedDisk, writer: AofWriter
) -> None:
    writer.append([b"x" * EARLY_BYTES])
    begin = writer.early_call()
    assert begin is not None
    old = max(disk.descriptors())
    takes_over(disk, writer)
    assert old in disk.descriptors()
    begin()
    writer.sync_ended(None)
    assert old not in disk.descriptors()
