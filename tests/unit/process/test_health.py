"""Health files: what is written is read back, and old, damaged and missing ones are noticed."""

import os
from pathlib import Path

import pytest

from disque_trio.process import health
from disque_trio.process.health import HealthError


def test_what_is_written_is_read_back_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "health"
    health.check_writable(path)
    for time in (1.0, 2.5):
        health.write(path, {"pid": 17, "time": time, "text": "ok"})
    assert health.read(path) == {"pid": 17, "time": 2.5, "text": "ok"}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"pid": 1}', '{"pid": "x", "time": 1}', '{"pid": 1, "time": null}'],
)
def test_any_other_file_is_not_a_health_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "health"
    path.write_text(text)
    with pytest.raises(HealthError, match="not a health file"):
        health.read(path)


def test_bytes_that_are_no_text_are_not_a_health_file(tmp_path: Path) -> None:
    path = tmp_path / "health"
    path.write_bytes(b"\xff")
    with pytest.raises(HealthError, match="not a health file"):
        health.read(path)


def test_without_a_file_its_program_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(HealthError, match="No such file"):
        health.read(tmp_path / "health")


def test_a_place_that_cannot_be_written_is_found_out_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        health.check_writable(tmp_path)
    with pytest.raises(FileNotFoundError):
        health.check_writable(tmp_path / "nowhere" / "health")


def test_an_old_file_has_no_sign_of_life_nor_has_one_from_the_far_future() -> None:
    assert health.age(100.0, 110.0, 10) == 10
    assert health.age(100.0, 60.0, 10) == -40  # a clock that was set back a little
    assert health.age(100.0, 9999.0, None) == 9899
    for now in (111.0, 30.0):
        with pytest.raises(HealthError, match="no sign of life"):
            health.age(100.0, now, 10)


def test_a_process_lives_until_it_ends() -> None:
    assert health.lives(os.getpid())
    assert health.lives(1)  # another user's
    assert not health.lives(2**22 + 1)
