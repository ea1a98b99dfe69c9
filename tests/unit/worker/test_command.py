"""The entry point of the command."""

import os
import sys

import pytest

from disque_trio.worker.command import open_closed


def test_closed_standard_streams_are_opened_for_it_and_for_its_processes(
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
