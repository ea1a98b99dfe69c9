"""Serialized jobs: the layout, and the errors."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.protocol.serialjob import (
    JobWriter,
    SerialJob,
    SerialJobError,
    decode_job,
)

ID = b"D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1"
NODE = b"dcb833cf" + b"0" * 32
FIELDS = [
    "id", "state", "flags", "repl", "etime", "ctime", "delay", "retry", "nacks", "deliveries",
    "queue", "body", "nodes", "gc_retry",
]  # fmt: skip


def encode(job: SerialJob, writer: JobWriter | None = None) -> bytes:
    writer = writer or JobWriter()
    state = job.state | job.gc_retry << 4
    numbers = (job.repl, job.etime, job.ctime, job.delay, job.retry, job.nacks, job.deliveries)
    return writer.encode(job.id, state, job.flags, *numbers, job.queue, job.body, job.nodes)


def fields(job: SerialJob) -> dict[str, object]:
    return {name: getattr(job, name) for name in FIELDS}


def numbers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


jobs = st.builds(
    SerialJob,
    id=st.just(ID),
    state=numbers(2),
    gc_retry=numbers(4),
    flags=numbers(8),
    repl=numbers(16),
    etime=numbers(32),
    ctime=numbers(64),
    delay=numbers(32),
    retry=numbers(32),
    nacks=numbers(16),
    deliveries=numbers(16),
    queue=st.binary(max_size=40),
    body=st.binary(max_size=200),
    nodes=st.lists(st.binary(min_size=40, max_size=40), max_size=4).map(b"".join),
)

EXAMPLE = SerialJob(ID, 2, 4, 3, 5, 6, 7, 8, 9, 10, b"qq", b"hello", NODE, 1)


# Jobs that often share fields.
alike = st.lists(
    st.builds(
        SerialJob,
        id=st.just(ID),
        queue=st.sampled_from([b"", b"q", b"r"]),
        body=st.sampled_from([b"", b"x", b"y"]),
        nodes=st.sampled_from([b"", NODE, NODE[::-1], NODE * 2]),
        **{
            name: st.integers(0, 2)
            for name in FIELDS
            if name not in ("id", "queue", "body", "nodes")
        },
    ),
    max_size=6,
)


@given(alike)
def test_what_was_written_before_makes_no_difference(jobs: list[SerialJob]) -> None:
    writer = JobWriter()
    assert [encode(job, writer) for job in jobs] == [encode(job) for job in jobs]


def test_a_number_that_is_too_large_leaves_no_trace() -> None:
    writer = JobWriter()
    for name in ("etime", "delay"):
        job = SerialJob(**fields(EXAMPLE))  # type: ignore[arg-type]
        setattr(job, name, 2**32)
        for _ in range(2):
            with pytest.raises(struct.error):
                encode(job, writer)
        assert encode(EXAMPLE, writer) == encode(EXAMPLE)


def test_a_job_is_laid_out_as_disque_does() -> None:
    assert encode(EXAMPLE) == (
        b"\x7f\0\0\0"
        + ID
        + b"\x12\4\3\0"
        + b"\5\0\0\0"
        + b"\6\0\0\0\0\0\0\0"
        + b"\7\0\0\0"
        + b"\x08\0\0\0"
        + b"\x09\0"
        + b"\x0a\0"
        + b"\2\0\0\0qq"
        + b"\5\0\0\0hello"
        + b"\1\0\0\0"
        + NODE
    )
    assert len(encode(EXAMPLE)) == 131


@given(jobs)
def test_every_job_comes_back_as_it_was(job: SerialJob) -> None:
    assert fields(decode_job(encode(job))) == fields(job)


@given(jobs, st.data())
def test_a_job_that_is_cut_anywhere_is_refused(job: SerialJob, data: st.DataObject) -> None:
    whole = encode(job)
    with pytest.raises(SerialJobError):
        decode_job(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(jobs, st.binary(min_size=1, max_size=50))
def test_bytes_behind_a_job_are_refused(job: SerialJob, more: bytes) -> None:
    with pytest.raises(SerialJobError):
        decode_job(encode(job) + more)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_job_or_refused(data: bytes) -> None:
    try:
        job = decode_job(data)
    except SerialJobError:
        return
    assert encode(job) == data


@given(jobs, st.data())
def test_a_changed_byte_is_refused_or_changes_the_job(job: SerialJob, data: st.DataObject) -> None:
    changed = bytearray(encode(job))
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] ^= data.draw(st.integers(1, 255))
    try:
        other = decode_job(bytes(changed))
    except SerialJobError:
        return
    assert fields(other) != fields(job)
    assert encode(other) == changed


@pytest.mark.parametrize(
    ("at", "to", "reason"),
    [
        (0, b"\xff\xff\xff\xff", "the job says it has 4294967295 bytes, there are 127"),
        (4, b"X", "malformed job id"),
        (5, b"_", "malformed job id"),
        (14, b"_", "malformed job id"),
        (39, b"_", "malformed job id"),
        (44, b"\x04", "unknown job state 4"),
        (72, b"\xff\xff\xff\xff", "the queue name goes past the end"),
        (78, b"\xff\xff\xff\xff", "the body goes past the end"),
        (87, b"\2\0\0\0", "the list of 2 nodes does not fit"),
        (87, b"\xff\xff\xff\xff", "the list of 4294967295 nodes does not fit"),
    ],
)
def test_the_reason_says_what_is_wrong(at: int, to: bytes, reason: str) -> None:
    whole = encode(EXAMPLE)
    with pytest.raises(SerialJobError) as caught:
        decode_job(whole[:at] + to + whole[at + len(to) :])
    assert str(caught.value) == reason


def test_too_few_bytes_are_no_job() -> None:
    with pytest.raises(SerialJobError, match="3 bytes are too few for a job"):
        decode_job(b"abc")


def test_a_job_without_body_queue_and_nodes_is_one() -> None:
    job = SerialJob(ID, 2, 4, 3, 5, 6, 7, 8, 9, 10, b"", b"", b"")
    assert fields(decode_job(encode(job))) == fields(job)
