"""The programs of docs/coming-from.md do the same, each with its framework in this process."""

import asyncio
import runpy
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.doc_blocks import blocks

PROGRAMS = {
    block.titles[-1]: block.text for block in blocks("docs/coming-from.md") if block.language
}
IN_MEMORY = ("memory://", "cache+memory://")
PRINTED = "4\n21\n"
Load = Callable[..., dict[str, Any]]
PAGES = {"": 4, "/": 4, "/more": 17}
"""The lengths of the pages on the site."""


class Site(BaseHTTPRequestHandler):
    """A site with two pages."""

    def do_GET(self) -> None:
        length = PAGES[self.path]
        self.send_response(200)
        self.send_header("content-length", str(length))
        self.end_headers()
        self.wfile.write(b"x" * length)

    def log_message(self, *words: Any) -> None:
        """Say nothing."""


@pytest.fixture
def site() -> Iterator[str]:
    """The address of the site."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def load(site: str, tmp_path: Path) -> Load:
    """Runs a program of the page as a module, with other words in place of some of its own."""

    def load(title: str, **others: str) -> dict[str, Any]:
        text = PROGRAMS[title].replace("https://example.org", site)
        for before, after in others.items():
            assert before in text
            text = text.replace(before, after)
        path = tmp_path / "pages.py"
        path.write_text(f"{text}\n")
        return runpy.run_path(str(path), run_name="pages")

    return load


def test_tasks(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    pages = load("disque_trio.tasks")
    with pages["app"].testing() as jobs:
        pages["main"]()
    assert capsys.readouterr().out == PRINTED
    assert [job.options["delay"] for job in jobs.added if "delay" in job.options] == [60]


def test_celery(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("celery")
    pages = load("Celery", **{f"redis://127.0.0.1:6379/{n}": IN_MEMORY[n] for n in (0, 1)})
    pages["app"].conf.task_always_eager = True
    pages["main"]()
    assert capsys.readouterr().out == PRINTED


def test_dramatiq(
    load: Load, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dramatiq = pytest.importorskip("dramatiq")
    monkeypatch.setattr("dramatiq.broker.global_broker", None)
    stubs = {"brokers.redis": "brokers.stub", "Redis": "Stub"}
    stubs |= {f'url="redis://127.0.0.1:6379/{n}"': "" for n in (0, 1)}
    pages = load("Dramatiq", **stubs)
    worker = dramatiq.Worker(pages["broker"])
    worker.start()
    try:
        pages["main"]()
    finally:
        worker.stop()
    assert capsys.readouterr().out == PRINTED


def test_taskiq(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("taskiq")  # of its own, not of these tests
    asyncio.run(load("taskiq")["main"]())
    assert capsys.readouterr().out == PRINTED
