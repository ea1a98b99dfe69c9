"""When the progress file is written, and when it is left alone."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from disque_trio.config import Config
from disque_trio.node.progress_file import ProgressFile
from tests.support.node_bench import Bench


class _Silent:
    def notice(self, text: str, **fields: Any) -> None: ...

    warning = notice


def make(bench: Bench, settings: dict[str, Any]) -> ProgressFile:
    return ProgressFile(bench.node, Config(settings), _Silent())  # type: ignore[arg-type]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with an append-only file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "disque.aof").write_bytes(b"")
    return tmp_path


def test_a_node_that_stops_while_it_loads_leaves_the_file_as_it_was(directory: Path) -> None:
    bench = Bench()
    bench("ADDJOB", "q", "body", 0)
    bench("GETJOB", "FROM", "q")
    file = make(bench, {"appendonly": True})
    file.start()
    file.stop(False)
    written = (directory / file.path).read_bytes()
    again = make(Bench(), {"appendonly": True})
    again.load(False)
    again.stop(False)
    assert (directory / file.path).read_bytes() == written


async def test_a_file_for_few_jobs_is_there_at_once_when_it_is_switched_on(
    directory: Path, autojump_clock: MockClock
) -> None:
    bench = Bench()
    bench("ADDJOB", "q", "body", 0)
    config = Config({"appendonly": False})
    file = ProgressFile(bench.node, config, _Silent())  # type: ignore[arg-type]
    file.start()
    assert file.info()["progress_file_status"] == "off"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.run)
        config.appendonly = True
        file.apply()
        assert file.info()["progress_file_status"] == "off"
        with trio.fail_after(0.5):
            while not (directory / file.path).exists():
                await trio.sleep(0.01)
        assert file.info()["progress_file_status"] == "ok"
        nursery.cancel_scope.cancel()
    file.close()


@pytest.mark.parametrize("at_once", [False, True])
def test_restart_uses_the_file_whatever_happens_at_other_starts(
    directory: Path, at_once: bool
) -> None:
    file = make(Bench(), {"appendonly": True})
    file.start()
    file.stop(True)
    bench = Bench()
    make(bench, {"appendonly": True, "requeue-at-start": False}).load(at_once)
    assert bench.node.recovery.knows == at_once
