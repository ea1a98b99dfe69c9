"""Reading elements from standard input, and writing them to standard output."""

import os

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from disque_pressure.elements import (
    Framing,
    Splitter,
    chunks,
    joined,
    reader_gone,
    whole,
    write,
)
from tests.support.harness import HANG_SECONDS


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


@given(
    st.lists(st.binary(max_size=5).filter(lambda line: b"\n" not in line)),
    st.lists(st.integers(1, 7)),
)
def test_lines_are_written_as_they_were_read_however_the_stream_is_cut(
    lines: list[bytes], sizes: list[int]
) -> None:
    splitter = Splitter(Framing.LINE)
    found = []
    for piece in cut(joined(lines, Framing.LINE), sizes):
        found += splitter.feed(piece)
    assert found + splitter.end() == lines


@given(st.binary(max_size=50), st.integers(1, 9), st.lists(st.integers(1, 7)))
def test_blocks_have_their_size_and_only_the_last_may_be_short(
    data: bytes, size: int, sizes: list[int]
) -> None:
    splitter = Splitter(Framing.BLOCK, size)
    found = []
    for piece in cut(data, sizes):
        found += splitter.feed(piece)
    found += splitter.end()
    assert all(len(block) == size for block in found[:-1])
    assert joined(found, Framing.BLOCK) == data
    assert b"" not in found


def test_a_last_line_needs_no_end_and_an_empty_line_is_an_element() -> None:
    splitter = Splitter(Framing.LINE)
    assert splitter.feed(b"a\n\nb") == [b"a", b""]
    assert splitter.end() == [b"b"]
    assert splitter.end() == []


def test_nul_separates_elements_that_contain_line_ends() -> None:
    splitter = Splitter(Framing.NUL)
    assert splitter.feed(b"a\nb\0c\0") == [b"a\nb", b"c"]
    assert splitter.end() == []


def test_a_block_needs_a_size() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Splitter(Framing.BLOCK, 0)


def test_the_number_of_whole_elements_in_what_was_written_is_known() -> None:
    elements = [b"a", b"", b"bcd"]
    assert [whole(elements, Framing.LINE, size) for size in range(8)] == [0, 0, 1, 2, 2, 2, 2, 3]


async def test_a_pipe_delivers_what_is_written_to_it() -> None:
    data = os.urandom(300_000)  # more than it holds
    read_end, write_end = os.pipe()
    found = bytearray()

    async def read() -> None:
        async for chunk in chunks(read_end):
            found.extend(chunk)

    try:
        with trio.fail_after(HANG_SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                await write(write_end, data)
                os.close(write_end)
    finally:
        os.close(read_end)
    assert found == data


async def test_files_and_null_devices_are_always_ready(tmp_path: "os.PathLike[str]") -> None:
    path = os.path.join(tmp_path, "file")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    null = os.open(os.devnull, os.O_RDWR)
    try:
        with trio.fail_after(HANG_SECONDS):
            await write(descriptor, b"x" * 100_000)
            os.lseek(descriptor, 0, os.SEEK_SET)
            assert b"".join([chunk async for chunk in chunks(descriptor)]) == b"x" * 100_000
            await write(null, b"x" * 100_000)
            assert [chunk async for chunk in chunks(null)] == []
    finally:
        os.close(descriptor)
        os.close(null)


async def test_a_pipe_without_a_reader_is_noticed() -> None:
    read_end, write_end = os.pipe()
    try:
        with trio.move_on_after(0.05) as waited:
            await reader_gone(write_end)
        assert waited.cancelled_caught
        os.close(read_end)
        with trio.fail_after(HANG_SECONDS):
            await reader_gone(write_end)
        with pytest.raises(BrokenPipeError):
            await write(write_end, b"x")
    finally:
        os.close(write_end)
