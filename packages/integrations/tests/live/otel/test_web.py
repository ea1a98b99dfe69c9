"""The program of docs/tracing.md: a web server, a worker and a real node, one trace."""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.harness import HANG_SECONDS, LiveNode, free_port, wait_until


@pytest.fixture
def output(shared_node: LiveNode, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Return the port of the web server, and the file that it and the worker print to."""
    environment = {
        **os.environ,
        "DISQUE_URL": f"disque://127.0.0.1:{shared_node.port}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    port, path = free_port(), tmp_path / "output"
    commands = (
        ["flask", "--app", "shop:web", "run", "--port", str(port)],
        ["disque_trio.worker.command", "shop:app"],
    )
    with ExitStack() as stack, path.open("ab") as file:
        for command in commands:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT / "examples" / "tracing",
                env=environment,
                stdout=file,
                stderr=file,
            )
            stack.callback(process.wait, HANG_SECONDS)
            stack.callback(process.terminate)
        yield port, path


def test_a_trace_goes_from_the_request_through_the_queue_to_the_worker(
    output: tuple[int, Path],
) -> None:
    port, path = output

    def is_taken() -> bool:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/mails/ann", b"")
        try:
            with urllib.request.urlopen(request, timeout=HANG_SECONDS) as answer:
                return answer.status == 202
        except OSError:
            return False

    def lines() -> dict[str, list[str]]:
        """Return the spans by name: process, trace, span, parent."""
        found = {}
        for line in path.read_text().splitlines():
            if line.startswith("process "):
                _, process, *name, trace, span, _, parent = line.split()
                found[" ".join(name)] = [process, trace, span, parent]
        return found

    wait_until(is_taken)
    wait_until(lambda: "process mail" in lines())
    spans = lines()
    web, send, receive, process, smtp = (
        spans[name] for name in ("POST /mails", "send mail", "receive mail", "process mail", "SMTP")
    )
    assert {span[1] for span in spans.values()} == {web[1]}
    assert web[3] == "-" * 16
    assert [send[3], receive[3], process[3], smtp[3]] == [web[2], send[2], send[2], process[2]]
    assert web[0] == send[0] != process[0] == smtp[0] == receive[0]
