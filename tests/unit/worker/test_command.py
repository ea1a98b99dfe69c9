"""The entry point of the command."""

import os
import sys
from pathlib import Path

import pytest

from disque_trio.process.logs import Logging
from disque_trio.process.systemd import Notifier
from disque_trio.worker.command import open_closed
from disque_trio.worker.options import parse
from disque_trio.worker.parent import Parent


def test_closed_standard_streams_are_opened_for_all_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = sys.stderr
    for name in ("stdin", "stdout"):
        monkeypatch.setattr(sys, name, None)
    open_closed()
    streams = [sys.stdin, sys.stdout]
    try:
        assert sys.stderr is before
        print("nobody reads this", flush=True)
        assert sys.stdin.read() == ""
        assert all(os.get_inheritable(stream.fileno()) for stream in streams)
    finally:
        for stream in streams:
            stream.close()


async def test_metrics_name_the_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith(("disque_trio.metrics.", "prometheus_client.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    options = parse(["shop:app", "--metrics", "9100"])
    problem = await Parent(options, Notifier({}), Logging("notice", "json").log).run()
    assert problem.startswith("--metrics needs prometheus-client: ")


async def test_a_status_file_that_cannot_be_written_ends_the_worker(tmp_path: Path) -> None:
    file = tmp_path / "none" / "status"
    options = parse(["shop:app", "--status-file", str(file)])
    problem = await Parent(options, Notifier({}), Logging("notice", "json").log).run()
    assert problem == f"--status-file {file}: No such file or directory"
