"""What ``--check`` concludes from the status file of a worker."""

import os
import time
from pathlib import Path

import pytest

from disque_trio.process import health
from disque_trio.process.fleet import State
from disque_trio.worker.check import FRESH, read_status
from disque_trio.worker.tally import Tally
from disque_trio.worker.view import View, WorkerView

NOBODY = 2**22 + 1  # no process has such an id


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "status"


def write(
    path: Path, *, pid: int | None = None, age: float = 0.0, state: State = State.SERVING
) -> None:
    view = View(1, 8, [WorkerView(0, 1, state, False, 0, 0, True)], Tally(), {}, {})
    health.write(path, view.status(os.getpid() if pid is None else pid, time.time() - age))


def test_a_serving_worker_is_healthy(path: Path) -> None:
    write(path)
    assert read_status(path)[0]


def test_a_worker_that_does_not_serve_is_unhealthy(path: Path) -> None:
    write(path, state=State.STARTING)
    well, text = read_status(path)
    assert (well, "no process serves" in text) == (False, True)


def test_a_killed_worker_has_left_its_file(path: Path) -> None:
    write(path, pid=NOBODY)
    well, text = read_status(path)
    assert (well, "is gone" in text) == (False, True)


def test_a_hung_worker_has_not_written_its_file_for_long(path: Path) -> None:
    write(path, age=FRESH + 60)
    well, text = read_status(path)
    assert (well, "no sign of life" in text) == (False, True)


@pytest.mark.parametrize("text", ["", "[]", '{"pid": 1}', '{"pid": "x", "time": 1}', "null"])
def test_any_other_file_is_not_a_status_file(path: Path, text: str) -> None:
    path.write_text(text)
    well, said = read_status(path)
    assert (well, "not a health file" in said) == (False, True)


def test_without_the_file_there_is_no_worker(path: Path) -> None:
    well, text = read_status(path)
    assert (well, "No such file" in text) == (False, True)
