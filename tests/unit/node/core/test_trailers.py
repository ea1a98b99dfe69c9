"""Jobs with trailers: on their way to other nodes, through files, in the memory account."""

import io
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.aof.compact import compact
from disque_trio.aof.dump import dump_all
from disque_trio.aof.format import AofError
from disque_trio.aof.loader import Loader
from disque_trio.node.core.jobs.job import ACKED, FLAG_TRAILER, JOB_OVERHEAD, QUEUED, Job
from disque_trio.node.core.jobs.trailers import TRAILER_OVERHEAD
from disque_trio.node.core.jobs.uniques import counted
from disque_trio.protocol import bus
from disque_trio.protocol.serialjob import decode_job, deljob, loadjob
from disque_trio.protocol.trailer import CANCELLED, Ending, Trailer
from tests.support.aof_disk import SimulatedDisk
from tests.support.mesh import Mesh
from tests.support.node_bench import START, Bench
from tests.support.trailers import ID, full_trailer, job_with, trailers

PAIRS = ["content-type", "text/plain"]
HEADERS = ["HEADERS", 1, *PAIRS]
WITH = [text.encode() for text in PAIRS]
ALIVE = START // 1000 + 1000  # when jobs in files expire, s
FULL = full_trailer().pack()


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def the_job(bench: Bench, id: bytes = ID) -> Job:
    job = bench.node.store.jobs.get(id)
    assert job is not None
    return job


def trailer_of(bench: Bench, id: bytes = ID) -> bytes | None:
    """Return the size of everything that the job has, in bytes."""
    trailer = bench.node.store.trailers.of(the_job(bench, id))
    return None if trailer is None else trailer.pack()


def used_beside_queues(bench: Bench) -> int:
    """Return what the account counts for jobs that have not ended."""
    bench.now += 1_000_000
    bench.node.tick(bench.now)
    bench.evict_idle_queues()
    store = bench.node.store
    keys = sum(counted(entry) for entry in store.uniques.entries.values())
    return bench.node.memory.used - store.outcomes.cancelled.size - keys


def receive(mesh: Mesh, type: int, *jobs: bytes, source: int = 0, target: int = 1) -> None:
    """Send ``target`` a packet with ``jobs``."""
    packet = mesh[source].node.packets.jobs(type, list(jobs))
    mesh[target].node.receive(mesh.ids[source], packet, mesh[target].now)
    mesh.settle()


def loaded(data: bytes, path: Path, seed: int = 1) -> Bench:
    """Return a node that found ``data`` in its file when it started."""
    path.write_bytes(data)
    bench = Bench(seed)
    bench.node.now = bench.now
    for _ in Loader(str(path), bench.node, True).steps():
        pass
    return bench


def dumped(bench: Bench) -> bytes:
    """Return the file as the node rewrites it."""
    disk = SimulatedDisk()
    dump_all(disk, "aof", bench.node).take_name()
    return bytes(disk.names["aof"].data)


def compacted(data: bytes) -> bytes:
    with tempfile.TemporaryFile() as out:
        compact(io.BytesIO(data), len(data), out, START // 1000)
        out.seek(0)
        return out.read()


# ---- other nodes ------------------------------------------------------------------------------


def test_copies_have_the_trailer(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 3, *HEADERS)
    assert [mesh[i].show(id)[b"headers"] for i in range(3)] == [WITH] * 3
    assert [mesh[i].show(id)[b"body"] for i in range(3)] == [b"body"] * 3


@pytest.mark.parametrize("options", [["ASYNC"], []])
def test_jobs_with_and_without_trailers_travel_together(mesh: Mesh, options: list[str]) -> None:
    clients = [mesh[0].client() for _ in range(4)]
    for number, client in enumerate(clients):
        more = HEADERS if number % 2 else []
        mesh[0].send(client, "ADDJOB", "q", "body", 0, "REPLICATE", 3, *options, *more)
    mesh.settle()
    for number, client in enumerate(clients):
        (id,) = mesh[0].replies(client)
        assert isinstance(id, bytes)
        for node in mesh.nodes:
            assert node.show(id).get(b"headers") == (WITH if number % 2 else None)


def test_a_job_with_a_trailer_moves_to_its_consumer(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 1, *HEADERS)
    mesh[1].send(mesh[1].me, "GETJOB", "WITHHEADERS", "FROM", "q")
    mesh.advance(1)
    assert mesh[1].replies(mesh[1].me) == [[[b"q", id, b"body", b"headers", WITH]]]


@pytest.mark.parametrize("type", [bus.REPLJOB, bus.YOURJOBS])
def test_all_that_a_trailer_has_goes_on_and_into_the_journal(mesh: Mesh, type: int) -> None:
    mesh[1].node.journaling = True
    receive(mesh, type, job_with(FULL, 1000, mesh.ids[:2]))
    assert trailer_of(mesh[1]) == FULL
    assert the_job(mesh[1]).body == b"body"
    (record,) = mesh[1].node.journal
    assert decode_job(record.split(b"\r\n", 4)[4][:-2]).body == b"body" + FULL
    mesh[1]("ENQUEUE", ID)
    mesh.advance(6)
    need = mesh[2].node.packets.about_queue(bus.NEEDJOBS, b"q", 1)
    mesh[1].node.receive(mesh.ids[2], need, mesh[1].now)
    mesh.settle()
    assert trailer_of(mesh[2]) == FULL


def test_a_trailer_of_a_later_version_goes_on_byte_for_byte(mesh: Mesh) -> None:
    later = b"of a later version\x12\0\0\0\2"
    receive(mesh, bus.REPLJOB, job_with(later, 1000, mesh.ids[:2]))
    assert the_job(mesh[1]).body == b"body"
    assert decode_job(mesh[1].node.bus_codec.encode(the_job(mesh[1]))).body == b"body" + later


def test_the_trailer_of_one_job_is_not_that_of_the_next(mesh: Mesh) -> None:
    second = ID[:-1] + b"3"
    plain = mesh[0].node.store.make_job(b"q", b"body", 1, 0, 10, 1000)
    jobs = [
        job_with(FULL, 1000, mesh.ids[:2]),
        mesh[0].node.bus_codec.encode(plain),
        job_with(b"\0\0\0\0\1", 1000, mesh.ids[:2], id=second),
    ]
    receive(mesh, bus.REPLJOB, *jobs)
    assert trailer_of(mesh[1]) == FULL
    assert trailer_of(mesh[1], plain.id) is None
    assert trailer_of(mesh[1], second) == b"\0\0\0\0\1"


@pytest.mark.parametrize("type", [bus.REPLJOB, bus.YOURJOBS])
@pytest.mark.parametrize(
    "lie", [b"", b"\0", b"\0\0\0\0\0", b"\xff\xff\xff\xff\1", b"\1\0\0\6\0\0\0\1"]
)
def test_a_lying_trailer_is_a_bad_packet(mesh: Mesh, type: int, lie: bytes) -> None:
    receive(mesh, type, job_with(lie, 1000, mesh.ids[:2], body=b""))
    assert mesh[1].node.bad_packets == 1
    assert mesh[1].node.store.jobs.count == 0
    assert mesh[1].node.memory.used == 0


@given(st.integers(0, 10_000), st.integers(0, 255), st.sampled_from([bus.REPLJOB, bus.YOURJOBS]))
def test_a_changed_job_with_a_trailer_is_held_or_a_bad_packet(
    at: int, byte: int, type: int
) -> None:
    mesh = Mesh(2)
    data = job_with(FULL, 1000, mesh.ids)
    at %= len(data)
    receive(mesh, type, data[:at] + bytes([byte]) + data[at + 1 :])
    assert mesh[1].node.store.jobs.count + mesh[1].node.bad_packets == 1
    mesh[1].node.flush()
    assert mesh[1].node.memory.used == 0


# ---- files ------------------------------------------------------------------------------------


@given(trailers())
def test_a_trailer_survives_restarts_dumps_and_compaction(
    tmp_path_factory: pytest.TempPathFactory, trailer: Trailer
) -> None:
    trailer.ending = None
    path = tmp_path_factory.mktemp("aof") / "aof"
    data = loadjob(job_with(trailer.pack(), ALIVE, [b"%040x" % 1], state=QUEUED))
    bench = loaded(data, path)
    assert trailer_of(bench) == trailer.pack()
    assert (the_job(bench).body, the_job(bench).state) == (b"body", QUEUED)
    again = loaded(compacted(dumped(bench)), path)
    assert trailer_of(again) == trailer.pack()
    assert (the_job(again).body, the_job(again).state) == (b"body", QUEUED)


def test_a_job_with_headers_survives_a_restart(bench: Bench, tmp_path: Path) -> None:
    bench.node.journaling = True
    id = bench.add("q", "body", *HEADERS)
    large = bench.add("q", "x" * 300_000, *HEADERS)
    again = loaded(b"".join(bench.node.journal), tmp_path / "aof")
    for job in (id, large):
        assert again.show(job)[b"headers"] == WITH
        assert again.show(job)[b"body"] == bench.show(job)[b"body"]


def test_a_later_record_with_a_trailer_takes_the_place_of_the_first(tmp_path: Path) -> None:
    node = [b"%040x" % 1]
    plain = loadjob(job_with(b"\0\0\0\0\1", ALIVE, node))
    full = loadjob(job_with(FULL, ALIVE, node, body=b"new"))
    for data in (plain + full, compacted(plain + full), full + full):
        bench = loaded(data, tmp_path / "aof")
        assert trailer_of(bench) == FULL
        assert the_job(bench).body == b"new"
        assert bench.node.store.jobs.count == 1
    assert compacted(plain + full) == full
    assert compacted(plain + full + deljob(ID)) == b""
    bench = loaded(plain + full + deljob(ID), tmp_path / "aof")
    assert used_beside_queues(bench) == 0


def test_a_lying_trailer_in_a_file_is_an_error_with_its_place(tmp_path: Path) -> None:
    good = loadjob(job_with(FULL, ALIVE, []))
    for lie in (b"\xff\xff\xff\xff\1", b"\0\0\0\0\0", b"\1\0\0\3\0\0\0\1"):
        with pytest.raises(AofError, match="trailer") as caught:
            loaded(good + loadjob(job_with(lie, ALIVE, [])), tmp_path / "aof")
        assert caught.value.offset == len(good)


def test_while_the_others_are_not_heard_yet_a_new_file_still_has_the_trailers(
    bench: Bench, tmp_path: Path
) -> None:
    id = bench.add("q", "body", *HEADERS)
    bench.node.peers.extended = False
    assert loaded(dumped(bench), tmp_path / "aof").show(id)[b"headers"] == WITH


def test_without_extensions_neither_files_nor_packets_have_a_trailer(bench: Bench) -> None:
    plain, with_headers = (
        the_job(bench, bench.add("q", "body", *options)) for options in ([], HEADERS)
    )
    bench.node.peers.extended = False
    bench.node.peers.plain = True
    for encode in (bench.node.aof_codec.serialize, bench.node.bus_codec.encode):
        first, second = decode_job(encode(plain)), decode_job(encode(with_headers))
        assert second.body == first.body == b"body"
        assert second.flags == first.flags
        assert second.flags & FLAG_TRAILER == 0


# ---- memory -----------------------------------------------------------------------------------


def test_a_trailer_is_counted_with_its_bytes(bench: Bench) -> None:
    before = bench.node.memory.used
    id = bench.add("q", "body", *HEADERS)
    size = len(trailer_of(bench, id) or b"")
    queue = bench.node.memory.used - before - JOB_OVERHEAD - len("body") - TRAILER_OVERHEAD - size
    bench.add("q", "body")
    assert bench.node.memory.used - before == (
        queue + 2 * (JOB_OVERHEAD + len("body")) + TRAILER_OVERHEAD + size
    )


def _expire(bench: Bench, id: bytes) -> None:
    bench.advance(2_000)


ENDS: dict[str, Callable[[Bench, bytes], object]] = {
    "ackjob": lambda bench, id: bench("ACKJOB", id),
    "fastack": lambda bench, id: bench("FASTACK", id),
    "deljob": lambda bench, id: bench("DELJOB", id),
    "expired": _expire,
    "flushed": lambda bench, id: bench("DEBUG", "FLUSHALL"),
    "cancelled": lambda bench, id: bench.node.ack_gc.end(
        the_job(bench, id), Ending(CANCELLED), "client"
    ),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_the_account_is_at_zero_when_the_job_has_ended(
    bench: Bench, end: Callable[[Bench, bytes], object]
) -> None:
    id = bench.add("q", "body", "TTL", 1000, *HEADERS)
    trailer = bench.node.store.trailers.want(the_job(bench, id))
    trailer.reason = b"x" * 100
    bench.node.store.trailers.recount(the_job(bench, id), trailer)
    end(bench, id)
    assert not bench.held(id)
    assert used_beside_queues(bench) == 0


def test_an_evicted_job_takes_its_trailer_along(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(maxmemory=100_000)
    for _ in range(500):
        id = bench.add("q", "body", "RETRY", 0, *HEADERS)
        assert bench.get() == id
    assert bench.node.store.total_evicted > 0
    for job in list(bench.node.store.jobs.values()):
        bench.node.store.delete(job)
    assert used_beside_queues(bench) == 0


def test_a_job_that_gets_no_copies_leaves_no_trailer_behind(mesh: Mesh) -> None:
    mesh.isolate(0)
    mesh[0].send(mesh[0].me, "ADDJOB", "q", "body", 100, "REPLICATE", 3, *HEADERS)
    mesh.advance(1)
    assert mesh[0].raw(mesh[0].me).startswith(b"-NOREPL")
    assert mesh[0].node.memory.used == 0


def test_jobs_that_end_in_a_cluster_leave_no_trailers_behind(mesh: Mesh) -> None:
    ids = [mesh.add(i % 3, "REPLICATE", 3, *HEADERS) for i in range(6)]
    mesh[0]("ACKJOB", *ids)
    mesh.advance(5)
    assert [used_beside_queues(mesh[i]) for i in range(3)] == [0, 0, 0]


# ---- endings ----------------------------------------------------------------------------------


def cancel(bench: Bench, id: bytes) -> None:
    bench.node.ack_gc.end(the_job(bench, id), Ending(CANCELLED), "client")
    bench.node.commit()


def test_an_ending_is_told_to_all_holders_and_ends_the_job_everywhere(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 3)
    mesh.told()
    cancel(mesh[0], id)
    assert mesh.told() == [(0, "endjob", 1), (0, "endjob", 2)]
    mesh.advance(2)
    assert mesh.holders(id) == []
    assert [used_beside_queues(mesh[i]) for i in range(3)] == [0, 0, 0]


def test_two_that_share_a_job_end_it_without_deljob(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2)
    (other,) = [i for i in mesh.holders(id) if i]
    mesh.told()
    cancel(mesh[0], id)
    mesh.settle()
    assert mesh.told() == [(0, "endjob", other), (other, "gotack", 0)]
    assert mesh.holders(id) == []


def test_c_nodes_are_told_of_an_ending_as_of_an_acknowledge() -> None:
    mesh = Mesh(3)
    mesh.c_nodes = {2}
    for peers in mesh.peers:
        peers.judge_extensions()
    id = mesh.add(0, "REPLICATE", 3)
    mesh.told()
    cancel(mesh[0], id)
    assert mesh.told() == [(0, "endjob", 1), (0, "setack", 2)]
    mesh.advance(2)
    assert mesh.holders(id) == []


def test_a_holder_that_was_cut_off_hears_of_the_ending_when_it_is_back(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 3)
    mesh.isolate(2)
    cancel(mesh[0], id)
    mesh.advance(10)
    assert mesh.holders(id) == [0, 1, 2]
    mesh.rejoin(2)
    mesh[2].node.notes.eventing = True
    mesh.advance(400)
    assert mesh.holders(id) == []
    kinds = [event[1] for event in mesh[2].node.notes.events if isinstance(event, tuple)]
    assert "cancelled" in kinds


def test_an_ending_is_told_after_a_restart_as_well(mesh: Mesh, tmp_path: Path) -> None:
    mesh[0].node.journaling = True
    id = mesh.add(0, "REPLICATE", 3)
    mesh.isolate(0)
    cancel(mesh[0], id)
    data = b"".join(mesh[0].node.journal)
    for file in (data, compacted(data), dumped(mesh[0])):
        other = Mesh(3)
        (tmp_path / "aof").write_bytes(file)
        for _ in Loader(str(tmp_path / "aof"), other[0].node, True).steps():
            pass
        assert the_job(other[0], id).state == ACKED
        other.advance(2)
        assert (0, "endjob", 1) in other.told()


def test_an_ending_of_an_unknown_job_is_confirmed(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2)
    (other,) = [i for i in mesh.holders(id) if i]
    mesh[other]("DELJOB", id)
    cancel(mesh[0], id)
    mesh.advance(2)
    assert mesh.holders(id) == []


def test_a_job_ends_only_once(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 3)
    mesh.isolate(0)
    job = the_job(mesh[0], id)
    assert mesh[0].node.ack_gc.end(job, Ending(CANCELLED), "client")
    assert not mesh[0].node.ack_gc.end(job, Ending(CANCELLED), "client")
    assert not mesh[0].node.ack_gc.acknowledge(job)


def test_an_ending_that_this_node_does_not_hold_finds_those_that_do(mesh: Mesh) -> None:
    id = mesh.add(1, "REPLICATE", 1)
    mesh[0].node.ack_gc.remember_ack(id, Ending(CANCELLED))
    mesh[1].node.notes.eventing = True
    mesh.advance(2)
    assert mesh.holders(id) == []
    kinds = [event[1] for event in mesh[1].node.notes.events if isinstance(event, tuple)]
    assert "cancelled" in kinds
    assert [used_beside_queues(mesh[i]) for i in range(3)] == [0, 0, 0]


def test_with_extensions_switched_off_a_new_file_is_as_c_nodes_read_it(
    bench: Bench, tmp_path: Path
) -> None:
    id = bench.add("q", "body", *HEADERS)
    bench.node.peers.extended = False
    bench.node.peers.plain = True
    again = loaded(dumped(bench), tmp_path / "aof")
    assert again.show(id)[b"body"] == b"body"
    assert b"headers" not in again.show(id)
