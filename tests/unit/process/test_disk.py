"""Files are replaced as a whole, and killed processes leave nothing behind for good."""

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from disque_trio.disk import remove_leftovers, replace_file


def leave_one(directory: Path, name: str) -> Path:
    """What a process leaves that is killed while it replaces a file."""
    descriptor, path = tempfile.mkstemp(".tmp", f".{name}.", directory)
    os.write(descriptor, b"half")
    os.close(descriptor)
    return Path(path)


def test_leftovers_of_this_file_are_removed_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "nodes[1].conf"
    leave_one(tmp_path, file.name)
    leave_one(tmp_path, file.name)
    other = leave_one(tmp_path, "nodes1.conf")
    remove_leftovers(str(file))
    assert [*tmp_path.iterdir()] == [other]
    leave_one(tmp_path, file.name)
    replace_file(str(file), b"new")
    assert {*tmp_path.iterdir()} == {other, file}
    assert file.read_bytes() == b"new"


def test_what_another_process_is_writing_stays(tmp_path: Path) -> None:
    file = tmp_path / "users"
    written = leave_one(tmp_path, file.name)
    with written.open("r+b") as writing:
        fcntl.flock(writing, fcntl.LOCK_EX)
        replace_file(str(file), b"mine")
        assert written.exists()
    remove_leftovers(str(file))
    assert [*tmp_path.iterdir()] == [file]


def test_a_temporary_file_that_another_process_takes_for_a_leftover_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "users"
    real = fcntl.flock
    taken: list[int] = []

    def flock(descriptor: int, how: int) -> None:
        if not taken:
            taken.append(descriptor)
            remove_leftovers(str(file))
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    replace_file(str(file), b"new")
    assert taken
    assert [*tmp_path.iterdir()] == [file]
    assert file.read_bytes() == b"new"


def test_where_nobody_can_lock_files_are_replaced_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(descriptor: int, how: int) -> None:
        raise OSError

    monkeypatch.setattr(fcntl, "flock", flock)
    file = tmp_path / "users"
    leftover = leave_one(tmp_path, file.name)
    replace_file(str(file), b"new")
    assert {*tmp_path.iterdir()} == {file, leftover}


def test_there_may_be_no_directory_yet(tmp_path: Path) -> None:
    remove_leftovers(str(tmp_path / "no" / "file"))
