"""Space on the disk for what has to be written about jobs that are there."""

import os
from pathlib import Path

import pytest

from disque_trio.aof.disk import Disk
from disque_trio.aof.dump import dump_all
from disque_trio.aof.room import LEAST
from disque_trio.aof.writer import AofWriter
from tests.support.aof_disk import SimulatedDisk
from tests.support.node_bench import Bench

MB = 1 << 20
RECORD = bytes(MB // 4)


def fill(writer: AofWriter) -> int:
    """Append until there is only the reserve left; return how many records it took."""
    count = 0
    while not writer.room.problem:
        assert writer.append([RECORD])
        count += 1
        assert count < 10_000
    return count


@pytest.mark.parametrize("held", [0, 1_000_000])
def test_the_reserve_is_enough_for_the_end_of_each_job(held: int) -> None:
    disk = SimulatedDisk()
    disk.room = 400 * MB
    writer = AofWriter(disk, "aof", "no", lambda: held)
    fill(writer)
    assert writer.room.left(writer.size) >= LEAST + 80 * held
    assert disk.room >= LEAST  # for other files


def test_a_small_disk_has_a_small_reserve() -> None:
    disk = SimulatedDisk()
    disk.room = 24 * MB
    writer = AofWriter(disk, "aof", "no")
    fill(writer)
    assert 3 * MB <= writer.room.left(writer.size) <= 6 * MB
    assert writer.size >= 12 * MB


def test_once_there_is_room_again_the_problem_is_gone() -> None:
    disk = SimulatedDisk()
    disk.room = 100 * MB
    writer = AofWriter(disk, "aof", "no")
    fill(writer)
    assert writer.append([b"end"])
    writer.find_room()
    assert writer.room.problem == "No space left on device"
    disk.room += 100 * MB
    writer.find_room()
    assert not writer.room.problem
    assert fill(writer) > 100


def test_a_file_that_was_cut_back_reserves_again() -> None:
    disk = SimulatedDisk(seed=3)
    writer = AofWriter(disk, "aof", "no")
    assert writer.append([b"one"])
    disk.fail = {"write"}
    assert not writer.append([b"two"])
    disk.fail = set()
    assert writer.retry()
    assert writer.room.left(writer.size) >= LEAST


def test_a_file_system_that_reserves_nothing_is_used_as_it_is() -> None:
    disk = SimulatedDisk()
    disk.fail = {"reserve"}
    writer = AofWriter(disk, "aof", "no")
    for _ in range(100):
        assert writer.append([RECORD])
    assert not writer.room.problem
    assert writer.room.left(writer.size) == 0


def test_a_new_file_has_a_reserve_of_its_own() -> None:
    disk = SimulatedDisk()
    disk.room = 100 * MB
    writer = AofWriter(disk, "aof", "no")
    fill(writer)
    disk.room = 100 * MB
    writer.take_over(dump_all(disk, "aof", Bench().node))
    assert not writer.room.problem
    assert writer.room.left(writer.size) >= LEAST


def test_a_file_that_is_switched_off_keeps_no_reserve(tmp_path: Path) -> None:
    path = tmp_path / "aof"
    disk = Disk()
    writer = AofWriter(disk, str(path), "no")
    assert writer.append([b"one"])
    if not writer.room.left(writer.size):
        pytest.skip("the file system reserves nothing")
    assert writer.close(for_good=True)
    assert path.read_bytes() == b"one"
    fd = os.open(path, os.O_RDWR)
    assert disk.allocated(fd) < LEAST
    os.close(fd)


def test_the_reserve_does_not_show_in_the_file_and_outlives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "aof"
    disk = Disk()
    for text in (b"one", b"two"):
        writer = AofWriter(disk, str(path), "no")
        assert writer.append([text])
        if not writer.room.left(writer.size):
            pytest.skip("the file system reserves nothing")
        assert writer.close()
    assert path.read_bytes() == b"onetwo"
    fd = os.open(path, os.O_RDWR)
    assert disk.allocated(fd) >= LEAST
    capacity, free = disk.space(fd)
    assert capacity >= free > 0
    os.close(fd)
