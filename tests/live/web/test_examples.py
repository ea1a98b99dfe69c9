"""The programs of docs/web.md, as separate servers, with a worker and a real node."""

import json
import os
import runpy
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from disque_trio.client.sync import connect
from tests.support import ROOT
from tests.support.harness import HANG_SECONDS, LiveNode, free_port, wait_until

EXAMPLES = ROOT / "examples"

Start = Callable[..., None]


@pytest.fixture
def start(shared_node: LiveNode, tmp_path: Path) -> Iterator[Start]:
    """Starts ``python -m`` with arguments in a folder of examples; ends it with the test."""
    node = f"127.0.0.1:{shared_node.port}"
    environment = {**os.environ, "DISQUE_URL": f"disque://{node}", "DISQUE_NODES": node}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
    with ExitStack() as stack:

        def start(folder: str, *arguments: str) -> None:
            output = stack.enter_context((tmp_path / f"{folder}-{arguments[0]}.log").open("wb"))
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=EXAMPLES / folder,
                env=environment,
                stdout=output,
                stderr=output,
            )
            stack.callback(end, process)

        yield start


def end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(HANG_SECONDS)
    finally:
        process.kill()


class Site:
    """A web server on a port of this machine."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def request(self, path: str, data: bytes | None = None, **headers: str) -> tuple[int, Any]:
        """Send a GET, or a POST of ``data``; return the status and the JSON of the response."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self._url + path, data, sent)
        try:
            with urllib.request.urlopen(request, timeout=HANG_SECONDS) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def post_json(self, path: str, value: object) -> tuple[int, Any]:
        return self.request(path, json.dumps(value).encode(), content_type="application/json")

    def post_form(self, path: str, **fields: str) -> tuple[int, Any]:
        return self.request(path, urllib.parse.urlencode(fields).encode())

    def listens(self) -> bool:
        try:
            self.request("/nothing")
        except OSError:
            return False
        except ValueError:  # no JSON
            pass
        return True


def a_mail_is_sent(site: Site, answer: tuple[int, Any]) -> None:
    """Wait until the mail named in the response to its POST is done."""
    status, said = answer
    assert status == 202
    path = f"/mails/{said['id']}"
    assert site.request(path)[1]["state"] in ("pending", "done")
    wait_until(lambda: site.request(path)[1]["state"] == "done")
    assert site.request(path)[1]["result"] == "sent 'hello' to ann"


def test_flask(start: Start) -> None:
    port = free_port()
    start("flask", "flask", "--app", "shop:web", "run", "--port", str(port))
    start("flask", "disque_trio.worker.command", "shop:app")
    site = Site(port)
    wait_until(site.listens)
    a_mail_is_sent(site, site.post_form("/mails", to="ann", subject="hello"))
    assert site.request("/mails/nonsense")[0] == 404


def test_without_a_node_tasks_run_where_they_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    shop = runpy.run_path(str(EXAMPLES / "flask" / "shop.py"))
    with shop["app"].testing():
        site = shop["web"].test_client()
        answer = site.post("/mails", data={"to": "ann", "subject": "hello"})
        assert answer.status_code == 202
        shown = site.get(f"/mails/{answer.json['id']}")
    assert shown.json == {"state": "done", "result": "sent 'hello' to ann"}


def test_fastapi(start: Start) -> None:
    port = free_port()
    start("fastapi", "uvicorn", "shop:web", "--port", str(port))
    start("fastapi", "disque_trio.worker.command", "shop:app")
    site = Site(port)
    wait_until(site.listens)
    a_mail_is_sent(site, site.post_json("/mails", {"to": "ann", "subject": "hello"}))
    assert site.request("/mails/nonsense")[0] == 404


def test_fastapi_with_the_client_alone(start: Start, shared_node: LiveNode) -> None:
    port = free_port()
    start("fastapi", "uvicorn", "orders:web", "--port", str(port))
    site = Site(port)
    wait_until(site.listens)
    order = {"number": 17, "what": "apples"}
    status, added = site.post_json("/orders", order)
    assert status == 202
    assert site.post_json("/orders", order) == (202, added)  # once
    path = f"/orders/{added['id']}"
    assert site.request(path) == (200, {"state": "pending", "result": None})
    with connect(f"127.0.0.1:{shared_node.port}") as client:
        [job] = client.get("orders", nohang=True, count=9)
        assert json.loads(job.body) == order
        client.ack(job.id, result="packed")
    assert site.request(path + "?wait=5") == (200, {"state": "acked", "result": "packed"})
    assert site.request("/orders/nonsense")[0] == 404
