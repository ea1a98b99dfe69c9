"""Files of the event log: closed in one step, and valid again after a crash."""

import fcntl
import gzip
import os
from pathlib import Path

import pytest

from disque_trio.eventlog import closing
from disque_trio.eventlog.closing import Closer, Retention, close_segment, prune
from disque_trio.eventlog.segments import Naming, Segment, create, leftovers

NODE = "0123456789abcdef0123456789abcdef01234567"
OTHER = "76543210" + NODE[8:]
NOW = 1_795_290_000_123
NAME = f"events-01234567-{NOW}-0.jsonl"
LINES = b'{"a":1}\n{"b":2}\n'


@pytest.fixture
def naming() -> Naming:
    return Naming(NODE)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def lost(segment: Segment) -> None:
    """Simulate the death of the process of ``segment``."""
    os.close(segment.fd)


def recover(directory: Path, naming: Naming, resumed: str = "", known: int = 0) -> None:
    for segment in leftovers(directory, naming, resumed, known):
        close_segment(segment, False)


def test_a_file_gets_its_name_only_when_it_is_closed(tmp_path: Path, naming: Naming) -> None:
    directory = tmp_path / "made" / "here"
    segment = create(directory, naming, NOW)
    segment.append(LINES)
    assert names(directory) == [NAME + ".open"]
    close_segment(segment, False)
    assert names(directory) == [NAME]
    assert (directory / NAME).read_bytes() == LINES


def test_names_are_never_reused(tmp_path: Path, naming: Naming) -> None:
    first, second = create(tmp_path, naming, NOW), create(tmp_path, naming, NOW)
    for segment, compress in ((first, False), (second, True)):
        segment.append(LINES)
        close_segment(segment, compress)
    third = create(tmp_path, naming, NOW)
    assert third.name == f"events-01234567-{NOW}-2.jsonl"
    lost(third)


def test_a_file_without_a_line_is_removed(tmp_path: Path, naming: Naming) -> None:
    close_segment(create(tmp_path, naming, NOW), True)
    assert names(tmp_path) == []


def test_a_compressed_file_replaces_the_open_one(tmp_path: Path, naming: Naming) -> None:
    segment = create(tmp_path, naming, NOW)
    segment.append(LINES)
    close_segment(segment, True)
    assert names(tmp_path) == [NAME + ".gz"]
    assert gzip.decompress((tmp_path / (NAME + ".gz")).read_bytes()) == LINES


def test_without_space_to_compress_it_the_file_is_kept_uncompressed(
    tmp_path: Path, naming: Naming
) -> None:
    segment = create(tmp_path, naming, NOW)
    segment.append(LINES)
    (tmp_path / "full").symlink_to("/dev/full")
    (tmp_path / "full").rename(tmp_path / (NAME + ".gz.open"))
    close_segment(segment, True)
    assert names(tmp_path) == [NAME]
    assert (tmp_path / NAME).read_bytes() == LINES


def test_the_start_of_a_failed_write_is_not_in_the_file(tmp_path: Path, naming: Naming) -> None:
    segment = create(tmp_path, naming, NOW)
    segment.append(LINES)
    os.pwrite(segment.fd, b'{"c":', segment.size)
    close_segment(segment, False)
    assert (tmp_path / NAME).read_bytes() == LINES


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        (LINES, LINES),
        (LINES + b'{"c":', LINES),
        (LINES + b'{"c":3}', LINES),
        (LINES + b"\0" * 5000, LINES),
        (LINES + b"\0" * 100 + b'"}\n', LINES),
        (LINES + b"x" * 200_000, LINES),
        (b'{"c":' + b" " * 200_000 + b"3}\n{", b'{"c":' + b" " * 200_000 + b"3}\n"),
    ],
    ids=["whole", "half a line", "no line feed", "zeros", "zeros in the line", "long", "long line"],
)
def test_a_file_left_by_a_crash_is_cut_to_whole_lines_and_closed(
    tmp_path: Path, naming: Naming, left: bytes, kept: bytes
) -> None:
    segment = create(tmp_path, naming, NOW)
    segment.append(left)
    lost(segment)
    recover(tmp_path, naming)
    assert names(tmp_path) == [NAME]
    assert (tmp_path / NAME).read_bytes() == kept


@pytest.mark.parametrize("left", [b"", b'{"a":', b"\0" * 100, b"nothing\n"])
def test_a_leftover_without_a_whole_line_leaves_no_file(
    tmp_path: Path, naming: Naming, left: bytes
) -> None:
    segment = create(tmp_path, naming, NOW)
    segment.append(left)
    lost(segment)
    recover(tmp_path, naming)
    assert names(tmp_path) == []


def test_a_leftover_is_cut_to_what_the_node_confirmed(tmp_path: Path, naming: Naming) -> None:
    for now in (NOW, NOW + 1):
        segment = create(tmp_path, naming, now)
        segment.append(LINES)
        lost(segment)
    recover(tmp_path, naming, segment.name, 8)
    assert (tmp_path / NAME).read_bytes() == LINES
    assert (tmp_path / segment.name).read_bytes() == LINES[:8]


def test_the_file_of_a_running_process_is_left_alone(tmp_path: Path, naming: Naming) -> None:
    segment = create(tmp_path, naming, NOW)
    segment.append(b'{"a":')
    assert list(leftovers(tmp_path, naming)) == []
    assert (tmp_path / (NAME + ".open")).read_bytes() == b'{"a":'
    lost(segment)


def test_the_files_of_another_node_are_left_alone(tmp_path: Path, naming: Naming) -> None:
    (tmp_path / f"events-{OTHER[:8]}-{NOW}-0.jsonl.open").write_bytes(b"{")
    (tmp_path / f"events-{OTHER[:8]}-{NOW}-0.jsonl").write_bytes(LINES)
    before = names(tmp_path)
    recover(tmp_path, naming)
    prune(tmp_path, naming, Retention(keep=1, most=1), NOW)
    assert names(tmp_path) == before


def test_without_a_directory_there_are_no_leftovers(tmp_path: Path, naming: Naming) -> None:
    assert list(leftovers(tmp_path / "none", naming)) == []


def test_a_file_that_another_process_takes_before_the_lock_is_not_used(
    tmp_path: Path, naming: Naming, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    calls = []

    def taken_first(fd: int, operation: int) -> None:
        calls.append(fd)
        if len(calls) == 1:  # to another process, it is an empty leftover
            (tmp_path / (NAME + ".open")).unlink()
        lock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", taken_first)
    segment = create(tmp_path, naming, NOW)
    segment.append(LINES)
    close_segment(segment, False)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [LINES]


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("crash", range(1, 12))
def test_a_crash_at_any_step_of_closing_neither_loses_nor_repeats_anything(
    tmp_path: Path, naming: Naming, monkeypatch: pytest.MonkeyPatch, compress: bool, crash: int
) -> None:
    segment = create(tmp_path, naming, NOW)
    segment.append(LINES)
    steps = 0

    class CrashError(BaseException):
        pass

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps >= crash:
            raise CrashError

    with monkeypatch.context() as patched:
        for owner, name in (
            (os, "fsync"),
            (os, "ftruncate"),
            (Path, "rename"),
            (Path, "unlink"),
            (closing.gzip, "GzipFile"),
            (closing, "sync_directory"),
        ):
            real = getattr(owner, name)

            def stepping(*args: object, _real: object = real, **options: object) -> object:
                step()
                assert callable(_real)
                return _real(*args, **options)

            patched.setattr(owner, name, stepping)
        try:
            close_segment(segment, compress)
        except CrashError:
            pass
    for leftover in leftovers(tmp_path, naming):
        close_segment(leftover, compress)
    assert names(tmp_path) == [NAME + (".gz" if compress else "")]
    data = (tmp_path / names(tmp_path)[0]).read_bytes()
    assert (gzip.decompress(data) if compress else data) == LINES


def closed(directory: Path, naming: Naming, now: int, mtime: int) -> str:
    segment = create(directory, naming, now)
    segment.append(LINES)
    close_segment(segment, False)
    os.utime(directory / segment.name, (mtime, mtime))
    return segment.name


def test_old_files_are_removed(tmp_path: Path, naming: Naming) -> None:
    old, young = (closed(tmp_path, naming, NOW + n, 1000 + n * 3600) for n in (0, 1))
    prune(tmp_path, naming, Retention(keep=3600), 1000 + 3600)
    assert names(tmp_path) == [old, young]
    prune(tmp_path, naming, Retention(keep=3600), 1000 + 3601)
    assert names(tmp_path) == [young]


def test_the_oldest_files_are_removed_to_free_space(tmp_path: Path, naming: Naming) -> None:
    files = [closed(tmp_path, naming, NOW + n, 1000) for n in range(5)]
    prune(tmp_path, naming, Retention(most=3 * len(LINES)), 1000)
    assert names(tmp_path) == files[2:]


def test_without_a_limit_all_files_are_kept(tmp_path: Path, naming: Naming) -> None:
    files = [closed(tmp_path, naming, NOW + n, 0) for n in range(3)]
    prune(tmp_path, naming, Retention(), 1e12)
    assert names(tmp_path) == files


def test_a_file_that_cannot_be_closed_is_reported_and_the_next_one_is_closed(
    tmp_path: Path, naming: Naming
) -> None:
    troubles: list[str] = []
    closer = Closer(tmp_path, naming, Retention(), lambda: 1000.0, troubles.append)
    try:
        bad, good = create(tmp_path, naming, NOW), create(tmp_path, naming, NOW + 1)
        (tmp_path / bad.name).mkdir()
        for segment in (bad, good):
            segment.append(LINES)
            closer.close(segment)
    finally:
        closer.finish()
    assert len(troubles) == 1
    assert (tmp_path / good.name).read_bytes() == LINES
    assert (tmp_path / (bad.name + ".open")).read_bytes() == LINES
