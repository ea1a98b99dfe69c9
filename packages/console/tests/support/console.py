"""A console in its own process, and a browser without JavaScript."""

import html
import http.client
import os
import re
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, urlencode

from tests.support.commands import start_command
from tests.support.harness import HANG_SECONDS, free_port, wait_until

HOST = "127.0.0.1"

PAGES: Mapping[str, str] = {
    "overview": "/",
    "queues": "/queues",
    "queues, searched": "/queues?search=*&sort=name",
    "queue": "/queue?name={queue}",
    "queue, by group": "/queue?name={queue}&by=group&range=24h",
    "queue that is not there": "/queue?name=nothing-here",
    "jobs": "/jobs",
    "jobs, searched": "/jobs?queue={queue}&state=queued&youngest=0&group={queue}&id=D-&header=x"
    "&value={queue}&header=y&value=z",
    "jobs in a list": "/jobs?state=fresh&queue={queue}",
    "jobs that run": "/jobs?state=running",
    "jobs before their time": "/jobs?state=delayed",
    "jobs that came back": "/jobs?state=retrying",
    "jobs that are dead": "/jobs?state=dead&text={queue}",
    "job": "/job?id={job}",
    "dead letters": "/dead",
    "dead letters of a queue": "/dead?queue={queue}",
    "job that is not there": "/job?id=D-00000000-" + "0" * 24 + "-05a1",
    "cluster": "/cluster",
    "schedules": "/schedules",
    "schedule": "/schedule?name={queue}",
    "workers": "/workers?queue={queue}",
    "workers by process": "/workers",
    "clients": "/clients",
    "slow log": "/slow",
    "settings": "/settings",
    "setting": "/setting?name=maxmemory",
    "setting that is secret": "/setting?name=requirepass",
}
"""All pages, for the tests that visit each one; ``{queue}`` is the name of a queue with jobs,
``{job}`` the id of one of them. Add a line here to run these tests on a new page."""

HOSTILE = (
    "<script>window.ran=1</script>",
    '"><img src=x onerror=window.ran=1>',
    "'-window.ran=1-'",
    "</title><svg onload=window.ran=1>",
    "javascript:window.ran=1",
    "{{7*7}}{% raw %}",
    "</textarea><iframe srcdoc='<script>parent.ran=1</script>'>",
    "a\u202egnp.exe",
    "line\r\nX-Injected: yes",
    "../../queues?name=q#x&y=%00",
    "\u0000\u0007",
    "x" * 3000,
)
"""Hostile names, bodies and the like, which must have no effect."""


@dataclass
class Answer:
    """A response of the console."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes
    seconds: float

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def says(self) -> str:
        """The text without markup."""
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", self.text)).split())

    @property
    def tags(self) -> list[tuple[str, dict[str, str]]]:
        """The elements with their attributes, as a browser parses them."""
        found: list[tuple[str, dict[str, str]]] = []
        parser = HTMLParser()
        parser.handle_starttag = lambda tag, attrs: found.append(  # type: ignore[method-assign]
            (tag, {name: value or "" for name, value in attrs})
        )
        parser.feed(self.text)
        return found

    @property
    def where(self) -> str:
        """Where it redirects to."""
        return self.headers["location"] or ""

    @property
    def token(self) -> str:
        """The token in its forms."""
        found = re.search(r'name="token" value="([0-9a-f]+)"', self.text)
        assert found, self.text
        return found[1]

    def fields(self, action: str) -> dict[str, str]:
        """The hidden fields of the form for ``/do/action``."""
        form = re.search(
            rf'<form[^>]*action="[^"]*/do/{action}"[^>]*>(.*?)</form>', self.text, re.S
        )
        assert form, f"no form for {action}"
        found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form[1])
        return {html.unescape(name): html.unescape(value) for name, value in found}


@dataclass
class Visitor:
    """A browser without JavaScript, with its cookies."""

    port: int
    cookies: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> Answer:
        """Get a page, following redirects."""
        answer = self.ask("GET", path, **headers)
        for _ in range(5):
            if answer.status not in (302, 303, 307):
                break
            answer = self.ask("GET", answer.where)
        return answer

    def post(self, path: str, form: Mapping[str, str], **headers: str) -> Answer:
        """Submit a form without following redirects."""
        return self.ask("POST", path, urlencode(form), **headers)

    def do(self, page: str, action: str, **fields: str) -> Answer:
        """Press a button on a page, confirm, and follow the redirect."""
        form = self.get(page).fields(action) | fields
        answer = self.post(f"/do/{action}", form)
        if answer.status == 200:
            answer = self.post(f"/do/{action}", answer.fields(action))
        assert answer.status == 303, answer.says
        return self.get(answer.where)

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> Answer:
        """One request."""
        sent = {
            **self.headers,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if body is not None:
            sent.setdefault("Content-Type", "application/x-www-form-urlencoded")
        started = time.monotonic()
        connection = http.client.HTTPConnection(HOST, self.port, timeout=HANG_SECONDS)
        try:
            connection.request(method, path, body, sent)
            reply = connection.getresponse()
            answer = Answer(reply.status, reply.headers, reply.read(), time.monotonic() - started)
        finally:
            connection.close()
        for line in answer.headers.get_all("set-cookie") or []:
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
            if not value or "Max-Age=0" in line:
                del self.cookies[name]
        return answer


class ConsoleProcess:
    """``disque-console`` in its own process."""

    def __init__(self, port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.port = port
        self.process = process
        self.log = log

    @property
    def base(self) -> str:
        """The start of its addresses."""
        return f"http://{HOST}:{self.port}"

    def visitor(self, **headers: str) -> Visitor:
        """A new visitor."""
        return Visitor(self.port, headers=headers)

    def wait_for(self, path: str, says: str | Callable[[str], bool]) -> None:
        """Wait until a page contains a text."""
        visitor = self.visitor()

        def there() -> bool:
            time.sleep(0.05)  # so that the console is not kept busy by this
            text = visitor.get(path).says
            return says in text if isinstance(says, str) else says(text)

        wait_until(there)

    @property
    def cpu(self) -> float:
        """CPU seconds that it has used."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> int:
        """End it cleanly; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(HANG_SECONDS)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=HANG_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(HANG_SECONDS)
        self.sock.connect(os.fspath(self._path))


@contextmanager
def console(
    directory: Path,
    nodes: list[int],
    *options: str,
    tls: ssl.SSLContext | None = None,
    unix: Path | None = None,
) -> Iterator[ConsoleProcess]:
    """A running console for the nodes with these ports. tls: how to connect to it. unix: a socket
    to use instead of a port."""
    port = free_port()
    log = directory / f"console-{port}.log"
    words = ["--nodes", *(f"{HOST}:{node}" for node in nodes)]
    words += ["--listen", str(unix) if unix else f"{HOST}:{port}", *options]
    with log.open("wb") as output:
        process = start_command(
            "disque-console", *words, cwd=directory, stdout=output, stderr=output
        )
    found = ConsoleProcess(port, process, log)
    try:
        wait_until(lambda: _answers(found, tls, unix))
        yield found
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(console: ConsoleProcess, tls: ssl.SSLContext | None, unix: Path | None) -> bool:
    assert console.process.poll() is None, console.log.read_text()
    connection = http.client.HTTPConnection(HOST, console.port, timeout=HANG_SECONDS)
    if unix is not None:
        connection = UnixConnection(unix)
    elif tls is not None:
        connection = http.client.HTTPSConnection(
            HOST, console.port, timeout=HANG_SECONDS, context=tls
        )
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status in (200, 404)
    except OSError:
        return False
    finally:
        connection.close()


def quoted(name: str | bytes) -> str:
    """A name as in addresses and hidden fields."""
    return quote(name, safe="")
