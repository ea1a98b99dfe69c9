"""The records of an append-only file, and the reader that returns them one by one."""

import io
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.aof.format import CHUNK, AofError, RecordReader, deljob, loadjob

ID = b"D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1"


def resp(args: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%b\r\n" % (len(a), a) for a in args)


def read(data: bytes, chunk: int = CHUNK) -> tuple[list[list[bytes]], AofError | None]:
    """Return all commands that can be read, and the error that stopped the reader."""
    reader = RecordReader(io.BytesIO(data), chunk=chunk)
    commands: list[list[bytes]] = []
    failure: AofError | None = None
    try:
        commands.extend(reader)
    except AofError as error:
        failure = error
    assert reader.offset == (len(data) if failure is None else failure.offset)
    return commands, failure


records = st.one_of(
    st.binary(max_size=300).map(lambda job: [b"LOADJOB", job]),
    st.just([b"DELJOB", ID]),
    st.lists(st.binary(max_size=30), min_size=1, max_size=5),
)
chunks = st.sampled_from([1, 7, 100, CHUNK])


def test_records_are_written_as_disque_does() -> None:
    assert loadjob(b"a\r\nb") == b"*2\r\n$7\r\nLOADJOB\r\n$4\r\na\r\nb\r\n"
    assert deljob(ID) == b"*2\r\n$6\r\nDELJOB\r\n$40\r\n" + ID + b"\r\n"


@given(st.lists(records, max_size=10), chunks)
def test_commands_are_read_back_at_any_chunk_size(commands: list[list[bytes]], chunk: int) -> None:
    assert read(b"".join(map(resp, commands)), chunk) == (commands, None)


@given(st.lists(records, min_size=1, max_size=4), chunks, st.data())
def test_a_cut_file_is_good_up_to_the_cut_command(
    commands: list[list[bytes]], chunk: int, data: st.DataObject
) -> None:
    whole = b"".join(map(resp, commands))
    cut = data.draw(st.integers(0, len(whole)))
    ends = [len(b"".join(map(resp, commands[: i + 1]))) for i in range(len(commands))]
    good, error = read(whole[:cut], chunk)
    assert good == commands[: sum(end <= cut for end in ends)]
    if cut in (0, *ends):
        assert error is None
    else:
        assert error is not None
        assert error.truncated


@given(st.binary(max_size=200), chunks)
def test_garbage_is_an_error_or_commands_never_anything_else(data: bytes, chunk: int) -> None:
    read(data, chunk)
    read(b"*1\r\n$" + data, chunk)


@pytest.mark.parametrize(
    ("data", "reason", "truncated"),
    [
        (b"hello", "expected * and a number, got b'hello'", False),
        (b"\0" * 5000, "expected * and a number, got " + repr(b"\0" * 32), False),
        (b"*1\r\n:4\r\n", "expected $ and a number, got b':4'", False),
        (b"*x\r\n", "expected * and a number, got b'*x'", False),
        (b"*-1\r\n", "expected * and a number, got b'*-1'", False),
        (b"*0\r\n", "a command without a name", False),
        (b"*9999999\r\n", "expected * and a number, got b'*9999999'", False),
        (b"*" + b"1" * 9999, "expected * and a number, got " + repr(b"*" + b"1" * 31), False),
        (b"*1\r\n$4\r\nPINGPONG", "an argument does not end where it should", False),
        (b"*1\r\n$9999\r\nPING\r\n", "the file ends inside of a command", True),
        (b"*1\r\n$4\r\nPING\r", "the file ends inside of a command", True),
        (b"*1\r", "the file ends inside of a command", True),
    ],
)
def test_the_reason_says_what_is_wrong(data: bytes, reason: str, truncated: bool) -> None:
    good, error = read(resp([b"PING"]) + data)
    assert good == [[b"PING"]]
    assert error is not None
    assert (error.reason, error.truncated) == (reason, truncated)


def test_an_argument_may_be_longer_than_a_chunk() -> None:
    job = bytes(range(256)) * 100
    assert read(loadjob(job) + deljob(ID), 100) == ([[b"LOADJOB", job], [b"DELJOB", ID]], None)


def test_a_reader_starts_where_the_file_stands() -> None:
    file = io.BytesIO(b"garbage" + deljob(ID))
    file.seek(7)
    reader = RecordReader(file, 7)
    assert list(reader) == [[b"DELJOB", ID]]
    assert reader.offset == 7 + len(deljob(ID))


@pytest.mark.parametrize("length", [lambda size: size // 2, lambda size: size * 2])
def test_a_damaged_length_does_not_bring_the_file_into_memory(
    tmp_path: Path, length: Callable[[int], int]
) -> None:
    path = tmp_path / "sparse.aof"
    size = 200 << 20
    path.write_bytes(b"*2\r\n$7\r\nLOADJOB\r\n$%d\r\n" % length(size))
    with path.open("r+b") as file:
        file.truncate(size)
        tracemalloc.start()
        with pytest.raises(AofError):
            next(RecordReader(file))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4 * CHUNK
