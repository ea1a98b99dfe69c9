"""Loading many records at a time gives the same result as loading them one by one."""

from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from disque_trio.aof.format import AofError, RecordReader
from disque_trio.aof.loader import RECORDS_A_STEP, Loader
from disque_trio.protocol.serialjob import JobWriter, deljob, loadjob, paused_queue
from tests.support.node_bench import START, Bench

SECOND = START // 1000
OWN = Bench(seed=7).node.id
OTHER = b"b" * 40
FIELDS = [
    "id", "queue", "body", "state", "flags", "repl", "ctime", "etime", "delay", "retry", "nacks",
    "deliveries", "qtime", "awake", "dump", "slot", "delivered", "confirmed", "gc_retry",
]  # fmt: skip


def job_id(number: int) -> bytes:
    return b"D-dcb833cf-%024d-05a1" % number


ids = st.integers(0, 5).map(job_id)
jobs = st.builds(
    JobWriter().encode,
    ids,
    st.sampled_from((0, 1, 1, 2, 2, 2, 3, 4, 0x12, 0xF1)),
    st.integers(0, 255),
    st.sampled_from((0, 1, 3, 65535)),
    st.sampled_from((0, SECOND - 1, SECOND, SECOND + 5, SECOND + 1000, 2**32 - 1)),
    st.sampled_from((0, START * 1_000_000, 2**63 - 1, 2**63, 2**64 - 1)),
    st.sampled_from((0, 0, 0, 3, 500, 2**32 - 1)),
    st.sampled_from((0, 1, 300, 300, 2**32 - 1)),
    st.sampled_from((0, 65535)),
    st.sampled_from((0, 7)),
    st.sampled_from((b"q", b"q", b"other", b"")),
    st.sampled_from((b"", b"body", b"\r\n" * 50)),
    st.sampled_from((OWN, OWN, OTHER, OWN + OTHER, OTHER + OWN, b"", OTHER * 2)),
)
records = st.one_of(
    jobs.map(loadjob),
    jobs.map(loadjob),
    jobs.map(lambda job: b"*2\r\n$7\r\nloadJOB\r\n$%d\r\n%b\r\n" % (len(job), job)),
    jobs.map(lambda job: b"*2\r\n$7\r\nLOADJOB\r\n$0%d\r\n%b\r\n" % (len(job), job)),
    ids.map(deljob),
    ids.map(lambda id: b"*3\r\n$6\r\nDELJOB\r\n$40\r\n%b\r\n$40\r\n%b\r\n" % (id, job_id(1))),
    st.builds(paused_queue, st.sampled_from((b"q", b"new")), st.integers(0, 3)),
)
files = st.lists(records, max_size=12).map(b"".join)


def loading_bench() -> Bench:
    bench = Bench(seed=7)
    bench.node.now = bench.now
    return bench


def one_by_one(data: bytes, queue_jobs: bool, bench: Bench) -> tuple[int, int, str]:
    """Load ``data``; return the offset of the end, the number of jobs loaded, and the error."""
    taken = at = 0
    reader = RecordReader(BytesIO(data))
    try:
        for record in reader:
            try:
                taken += bench.node.load_record(record, queue_jobs)
            except ValueError as failure:
                raise AofError(at, str(failure), False) from failure
            at = reader.offset
    except AofError as error:
        return at, taken, f"{error} {error.truncated}"
    return at, taken, ""


def by_the_loader(data: bytes, queue_jobs: bool, bench: Bench) -> tuple[int, int, str]:
    with TemporaryDirectory() as directory:
        path = Path(directory, "aof")
        path.write_bytes(data)
        loader = Loader(str(path), bench.node, queue_jobs)
        error = ""
        try:
            for _ in loader.steps():
                pass
        except AofError as failure:
            error = f"{failure} {failure.truncated}"
        return loader.loaded, loader.jobs, error


def all_of(bench: Bench) -> object:
    """Return everything a node holds."""
    store = bench.node.store
    held = sorted(store.jobs.values(), key=lambda job: job.id)
    return (
        [[getattr(job, name) for name in FIELDS] for job in held],
        [
            (queue.name, queue.paused, [job.id for job in queue.first_to_last()], queue.jobs_in)
            for queue in sorted(store.queues.by_name.values(), key=lambda queue: queue.name)
        ],
        list(store.evictable),
        store.jobs.count,
        store.timers.next_due(),
        bench.node.memory.used,
        bench.node.journal,
    )


@given(files, st.booleans())
def test_what_is_loaded_is_the_same(data: bytes, queue_jobs: bool) -> None:
    slow, fast = loading_bench(), loading_bench()
    assert by_the_loader(data, queue_jobs, fast) == one_by_one(data, queue_jobs, slow)
    assert all_of(fast) == all_of(slow)


@given(files, st.booleans(), st.data())
def test_damage_is_found_at_the_same_place(
    data: bytes, queue_jobs: bool, draw: st.DataObject
) -> None:
    at = draw.draw(st.integers(0, len(data)))
    patch = draw.draw(st.binary(max_size=4))
    for damaged in (data[:at], data[:at] + patch + data[at + len(patch) :]):
        slow, fast = loading_bench(), loading_bench()
        assert by_the_loader(damaged, queue_jobs, fast) == one_by_one(damaged, queue_jobs, slow)
        assert all_of(fast) == all_of(slow)


@given(files, st.integers(0, 13), st.data())
def test_records_are_only_loaded_whole_and_no_more_than_wanted(
    data: bytes, most: int, draw: st.DataObject
) -> None:
    upto = draw.draw(st.integers(0, len(data)))
    slow, fast = loading_bench(), loading_bench()
    at, records, jobs = fast.node.load_usual(data[:upto], 0, most, False)
    assert at <= upto
    assert records <= most
    assert one_by_one(data[:at], False, slow) == (at, jobs, "")
    assert all_of(fast) == all_of(slow)


def test_a_step_ends_after_as_many_records_whatever_they_are(tmp_path: Path) -> None:
    job = JobWriter().encode(job_id(1), 1, 0, 1, 2**31, 1, 0, 300, 0, 0, b"q", b"x", OWN)
    record = loadjob(job) + paused_queue(b"q", 1) + deljob(job_id(1))
    path = tmp_path / "aof"
    path.write_bytes(record * RECORDS_A_STEP)
    loader = Loader(str(path), loading_bench().node, False)
    seen = [loader.records for _ in loader.steps()]
    assert seen == [RECORDS_A_STEP * n for n in (1, 2, 3)]
    assert loader.loaded == loader.total


def test_what_nodes_write_is_loaded_in_one_go() -> None:
    jobs = [
        JobWriter().encode(job_id(n), state, 0, 1, 2**31, 1, 0, 300, 0, 0, b"q", b"x" * size, nodes)
        for n, (state, size, nodes) in enumerate(
            (state, size, nodes)
            for state in (0, 1, 2)
            for size in (0, 100, 100_000)
            for nodes in (OWN, OWN + OTHER)
        )
    ]
    data = b"".join([*map(loadjob, jobs), deljob(job_id(0)), deljob(job_id(99))])
    bench = loading_bench()
    assert bench.node.load_usual(data, 0, 1000, True) == (len(data), len(jobs) + 2, len(jobs))
    assert bench.node.store.jobs.count == len(jobs) - 1
