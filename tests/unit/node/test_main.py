"""``disque-server`` in this process, up to where a node would run."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_trio.node.main import main


@pytest.fixture(autouse=True)
def _sighup() -> Iterator[None]:
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


def test_it_says_so_if_it_may_not_use_its_directory_even_if_started_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "chdir", refuse)
    status = main(["--dir", str(tmp_path)])
    monkeypatch.undo()
    assert status == 1
    assert str(tmp_path) in capsys.readouterr().err
