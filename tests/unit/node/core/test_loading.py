"""What is loaded from damaged files."""

from disque_trio.node.core.jobs.job import ACTIVE
from disque_trio.node.core.queues.aof_codec import LARGE_BODY
from disque_trio.protocol.serialjob import JobWriter, loadjob
from disque_trio.resp.ints import INT64_MAX
from tests.support.node_bench import Bench


def test_a_creation_time_that_no_client_could_read_is_cut_to_what_they_can(bench: Bench) -> None:
    id = b"D-%b-%b-05a1" % (b"0" * 8, b"a" * 24)
    etime = bench.now // 1000 + 1000
    nodes = bench.node.id
    data = JobWriter().encode(id, ACTIVE, 0, 1, etime, 2**64 - 1, 0, 10, 0, 0, b"q", b"body", nodes)
    assert bench.node.load_record([b"LOADJOB", data], False) == 1
    shown = bench("SHOW", id)
    assert shown[shown.index(b"ctime") + 1] == INT64_MAX


def test_the_record_of_a_large_job_is_that_of_any_other_and_no_copy(bench: Bench) -> None:
    node = bench.node
    node.journaling = True
    for size in (LARGE_BODY - 1, LARGE_BODY, LARGE_BODY + 7):
        body = bytes(range(7)) * (size // 7) + b"x" * (size % 7)
        id = bench("ADDJOB", "a queue", body, 0)
        job = node.store.jobs.get(id)  # type: ignore[arg-type]
        assert job is not None
        assert b"".join(node.journal) == loadjob(node.aof_codec.serialize(job))
        assert (job.body in node.journal) == (size >= LARGE_BODY)
        node.journal.clear()
