"""The flag bits of a job that mean nothing to this version: it keeps them, as C nodes do."""

from pathlib import Path

import pytest

from disque_trio.aof.compact import compact
from disque_trio.aof.dump import dump_all
from disque_trio.aof.format import RecordReader
from disque_trio.node.core.jobs.job import ACKED, ACTIVE, FLAG_DELIVERED, FLAG_QUEUED_BEFORE
from disque_trio.protocol import bus
from disque_trio.protocol.serialjob import JobWriter, decode_job, loadjob
from tests.support.aof_disk import SimulatedDisk
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

FOREIGN = 0x78
ID = b"D-%b-%b-05a1" % (b"0" * 8, b"a" * 24)
ONCE = ID[:-1] + b"0"


def foreign_job(left: int, holders: list[bytes], flags: int = FOREIGN, id: bytes = ID) -> bytes:
    """Return a job with ``flags``, as another version sends it (``left``: s) or writes it
    (etime)."""
    retry = 10 if id == ID else 0
    nodes = b"".join(holders)
    return JobWriter().encode(
        id, ACTIVE, flags, 2, left, 10**18, 0, retry, 0, 0, b"q", b"body", nodes
    )


def receive(mesh: Mesh, type: int, flags: int = FOREIGN, id: bytes = ID) -> None:
    """Let node 1 get the job from node 0."""
    job = foreign_job(1000, mesh.ids[:2], flags, id)
    mesh[1].node.receive(mesh.ids[0], mesh[0].node.packets.jobs(type, [job]), mesh[1].now)
    mesh.settle()


def sent_flags(mesh: Mesh, type: int) -> list[int]:
    """Return the flags of the jobs in flight in packets of ``type``."""
    return [
        decode_job(job).flags
        for _, _, packet in mesh.moving
        if bus.packet_type(packet) == type
        for job in bus.read_jobs(packet).jobs
    ]


def flags_in(records: list[bytes]) -> list[int]:
    """Return the flags of the jobs in the records of a file."""
    return [decode_job(record.split(b"\r\n", 4)[4][:-2]).flags for record in records]


def load(bench: Bench, flags: int, state: int = ACTIVE) -> None:
    etime = bench.now // 1000 + 1000
    nodes = bench.node.id
    job = JobWriter().encode(ID, state, flags, 1, etime, 10**18, 0, 10, 0, 0, b"q", b"body", nodes)
    assert bench.node.load_record([b"LOADJOB", job], False) == 1


@pytest.mark.parametrize("type", [bus.REPLJOB, bus.YOURJOBS])
@pytest.mark.parametrize("bit", range(3, 7))
def test_a_bit_that_came_over_the_bus_goes_on_with_the_job(type: int, bit: int) -> None:
    mesh = Mesh(3)
    mesh.older.add(2)  # it gets YOURJOBS
    mesh[1].node.journaling = True
    receive(mesh, type, 1 << bit)
    assert [flags & FOREIGN for flags in flags_in(mesh[1].node.journal)] == [1 << bit]
    mesh[1]("ENQUEUE", ID)
    mesh.advance(6)  # imported jobs are for clients here first
    need = mesh[2].node.packets.about_queue(bus.NEEDJOBS, b"q", 1)
    mesh[1].node.receive(mesh.ids[2], need, mesh[1].now)
    assert sent_flags(mesh, bus.YOURJOBS) == [FLAG_QUEUED_BEFORE | 1 << bit]
    mesh.settle()
    assert mesh[2].node.store.jobs.get(ID).flags & FOREIGN == 1 << bit


def test_a_copy_of_an_at_most_once_job_keeps_its_bits_and_is_not_queued_by_itself() -> None:
    mesh = Mesh(2)
    receive(mesh, bus.REPLJOB, 0, ONCE)
    assert mesh[1]("ENQUEUE", ONCE) == 0
    receive(mesh, bus.YOURJOBS, FOREIGN, ONCE)
    assert mesh[1]("ENQUEUE", ONCE) == 0

    mesh = Mesh(2)
    receive(mesh, bus.REPLJOB, FOREIGN, ONCE)
    assert mesh[1]("ENQUEUE", ONCE) == 0
    packet = mesh[0].node.packets.about_job(bus.ENQUEUE, ONCE)
    mesh[1].node.receive(mesh.ids[0], packet, mesh[1].now)
    assert mesh[1].get() == ONCE
    assert mesh[1].node.store.jobs.get(ONCE).flags & FOREIGN == FOREIGN


def test_what_this_node_keeps_to_itself_is_in_no_packet_and_no_file() -> None:
    mesh = Mesh(3)
    mesh[1].node.journaling = True
    receive(mesh, bus.REPLJOB, FLAG_QUEUED_BEFORE, ONCE)
    assert flags_in(mesh[1].node.journal) == [FLAG_QUEUED_BEFORE]
    mesh[1].node.start_dump()
    assert flags_in(mesh[1].node.dump_step(10, 10_000)[0]) == [FLAG_QUEUED_BEFORE]


@pytest.mark.parametrize("type", [bus.REPLJOB, bus.YOURJOBS])
def test_a_copy_of_a_known_job_changes_none_of_its_bits(type: int) -> None:
    mesh = Mesh(3)
    receive(mesh, bus.REPLJOB, 0x50)
    receive(mesh, type, 0x28)
    assert mesh[1].node.store.jobs.get(ID).flags & FOREIGN == 0x50


def test_what_a_node_delivered_is_not_said_of_its_copies() -> None:
    mesh = Mesh(3)
    receive(mesh, bus.YOURJOBS, FOREIGN | FLAG_DELIVERED)
    assert mesh[1].node.store.jobs.get(ID).flags & FLAG_DELIVERED == 0


@pytest.mark.parametrize("state", [ACTIVE, ACKED])
def test_bits_of_a_loaded_job_are_in_each_new_file(bench: Bench, state: int) -> None:
    load(bench, FOREIGN | FLAG_DELIVERED, state)
    disk = SimulatedDisk()
    dump_all(disk, "aof", bench.node).take_name()
    (flags,) = flags_in([bytes(disk.names["aof"].data)])
    assert flags & FOREIGN == FOREIGN


def test_bits_of_a_job_are_in_a_compacted_file(bench: Bench, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(loadjob(foreign_job(bench.now // 1000 + 1000, [bench.node.id])))
    with old.open("rb") as file, new.open("w+b") as out:
        compact(file, old.stat().st_size, out, bench.now // 1000)
    with new.open("rb") as file:
        ((name, job),) = RecordReader(file)
    assert (name, decode_job(job).flags) == (b"LOADJOB", FOREIGN)


def test_an_acknowledge_of_an_unknown_job_has_no_bits() -> None:
    mesh = Mesh(2)
    mesh.cut(0, 1)
    mesh[1]("ACKJOB", ID)
    receive(mesh, bus.REPLJOB)
    assert mesh[1].node.store.jobs.get(ID).flags == 0
