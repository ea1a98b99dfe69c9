"""Jobs from other nodes are read in the same way, whatever came before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.queues.bus_codec import BusCodec
from disque_trio.protocol.serialjob import JobWriter
from tests.support.node_bench import Bench

IDS = [b"D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a%d" % n for n in range(2)]
BAD_IDS = [b"D-dcb833cf-8YL1NT17e9 wsA/09NqxscQI-05a1", b"X" * 40]
FIELDS = [
    "id", "queue", "body", "delivered", "ctime", "etime", "delay", "retry", "repl", "nacks",
    "deliveries", "flags", "state",
]  # fmt: skip
NODES = [b"%040x" % n for n in range(3)]

bench = Bench()
small = st.integers(0, 1)
jobs = st.builds(
    JobWriter().encode,
    st.sampled_from(IDS + BAD_IDS),
    st.sampled_from([0, 1, 1, 1, 4]),
    *[small] * 3,
    st.sampled_from([0, 1, 2**62, 2**63 - 1, 2**63]),
    *[small] * 4,
    st.sampled_from([b"q", b"", b"longer"]),
    st.sampled_from([b"body", b"", b"another body"]),
    st.sampled_from([b"", NODES[0], NODES[0] + NODES[1]]),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Return a job, which is usually well-formed."""
    data = draw(jobs)
    at = draw(st.integers(0, len(data) - 1))
    return draw(
        st.sampled_from(
            [
                data,
                data,
                data,
                data[:at],
                data[at:],
                data + b"\0",
                data[:at] + b"\1" + data[at + 1 :],
            ]
        )
    )


def seen(job: Job | None) -> object:
    if job is None:
        return None
    return {name: getattr(job, name) for name in FIELDS}


@pytest.mark.parametrize("strange", [b'"', b"\\", b" ", b"\n", b"\0", b"\x1b", b"\x7f", b"\xff"])
def test_an_id_that_would_break_replies_or_lines_is_refused(strange: bytes) -> None:
    data = JobWriter().encode(IDS[0], 1, 0, 1, 9, 1, 0, 1, 0, 0, b"q", b"body", NODES[0])
    assert BusCodec(bench.node.store).decode(data) is not None
    at = data.index(b"wsA")
    assert BusCodec(bench.node.store).decode(data[:at] + strange + data[at + 1 :]) is None


@given(st.lists(damaged() | jobs, max_size=8))
def test_decoding_does_not_depend_on_earlier_packets(found: list[bytes]) -> None:
    codec = BusCodec(bench.node.store)
    for data in found:
        assert seen(codec.decode(data)) == seen(BusCodec(bench.node.store).decode(data))
