"""What is loaded from files that are damaged."""

from node_bench import Bench

from disque_trio.core.job import ACTIVE
from disque_trio.protocol.ints import INT64_MAX
from disque_trio.protocol.serialjob import encode_job, encode_nodes


def test_a_creation_time_that_no_client_could_read_is_cut_to_what_they_can(bench: Bench) -> None:
    id = b"D-%b-%b-05a1" % (b"0" * 8, b"a" * 24)
    etime = bench.now // 1000 + 1000
    nodes = encode_nodes([bench.node.id])
    data = encode_job(id, ACTIVE, 0, 1, etime, 2**64 - 1, 0, 10, 0, 0, b"q", b"body", nodes)
    assert bench.node.load_record([b"LOADJOB", data], False) == 1
    shown = bench("SHOW", id)
    assert shown[shown.index(b"ctime") + 1] == INT64_MAX
