"""A node with jobs in every state is killed: its file says what there was."""

from io import BytesIO
from tempfile import TemporaryFile

import pytest

from disque_trio.aof.compact import compact
from disque_trio.aof.format import RecordReader
from disque_trio.node.core.jobs.job import ACTIVE, QUEUED
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench


def journal(bench: Bench) -> bytes:
    return b"".join(bench.node.journal)


def compacted(bench: Bench) -> bytes:
    data = journal(bench)
    with TemporaryFile() as out:
        compact(BytesIO(data), len(data), out, bench.now // 1000)  # type: ignore[arg-type]
        out.seek(0)
        return out.read()


def dumped(bench: Bench) -> bytes:
    bench.node.start_dump()
    records: list[bytes] = []
    all_of_it = False
    while not all_of_it:
        more, all_of_it = bench.node.dump_step(3, 1 << 20)
        records += more
    return b"".join(records)


def loaded(old: Bench, data: bytes) -> Bench:
    bench = Bench(seed=77, id=old.node.id)
    bench.now = bench.node.now = old.now
    for record in RecordReader(BytesIO(data)):
        bench.node.load_record(record, False)
    return bench


def jobs(bench: Bench) -> dict[bytes, list[object]]:
    """Return what survives of each job; how often it was delivered, and why it came back, does
    not."""
    trailers = bench.node.store.trailers
    found: dict[bytes, list[object]] = {}
    for job in bench.node.store.jobs.values():
        trailer = trailers.of(job)
        more: list[object] = []
        if trailer is not None:
            more = [trailer.headers, trailer.key, trailer.key_until, trailer.updated]
            more += [part and part.pack() for part in (trailer.letter, trailer.ending)]
        state = ACTIVE if job.state == QUEUED else job.state
        times = [int(time) for time in (job.etime, job.retry, job.delay)]
        found[job.id] = [state, job.queue, job.body, *times, *more]
    return found


def keys(bench: Bench) -> set[tuple[bytes, bytes]]:
    shards = bench.node.store.uniques.entries.shards
    return {(entry.key, entry.id) for shard in shards for entry in shard.values()}


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("file", [journal, compacted, dumped])
def test_everything_is_there_again(nodes: int, file: object) -> None:
    mesh = Mesh(nodes)
    bench = mesh[0]
    for node in mesh.nodes:
        node.node.journaling = True
    bench("QSET", "q", "DEAD", "dead", "ATTEMPTS", 3, "BACKOFF", 1, 10)
    mesh.settle()

    def run(*words: str | bytes | int) -> object:
        bench.send(bench.me, *words)
        mesh.advance(0.1)
        (reply,) = bench.replies(bench.me)
        assert not isinstance(reply, Exception), reply
        return reply

    ids = []
    for number in range(10):
        more = ("FOR", 100) if number % 2 else ()
        head = ("HEADERS", 1, "number", number)
        id = run("ADDJOB", "q", f"b{number}", 0, *head, "UNIQUE", f"k{number}", *more)
        assert isinstance(id, (bytes, str))
        ids.append(id)
    bench.get_all()
    run("NACK", ids[0], "DEAD", "REASON", "broken")
    run("NACK", ids[1], "DELAY", 50, "REASON", "later")
    run("NACK", ids[2])
    run("CANCEL", ids[3])
    run("ACKJOB", ids[4], "RESULT", "done")
    run("ACKJOB", ids[5])
    run("NACK", ids[6], "DEAD")
    assert run("REDRIVE", "dead", "COUNT", 1) == 1
    delayed = run("ADDJOB", "q", "old", 0, "DELAY", 100, "UNIQUE", "delayed")
    assert isinstance(delayed, (bytes, str))
    run("UPDATEJOB", delayed, "BODY", "new", "DELAY", "200.5")
    moved = run("ADDJOB", "q", "moved", 0, "UNIQUE", "moved")
    assert isinstance(moved, (bytes, str))
    run("UPDATEJOB", moved, "QUEUE", "other")
    run("ADDJOB", "q", "at", 0, "AT", bench.now + 10_000, "MAXLEN", 100)
    run("ADDJOB", "q", "short", 0, "TTL", 2)
    mesh.advance(5)  # it expires, and leaves a letter
    for old in mesh.nodes:
        assert callable(file)
        again = loaded(old, file(old))
        assert jobs(again) == jobs(old)
        assert keys(again) == keys(old)
        assert again.node.memory.used == again.counted_memory()
    assert sum(job[2] == b"new" for job in jobs(bench).values()) == 1
