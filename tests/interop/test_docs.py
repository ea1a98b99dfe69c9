"""docs/clients-in-other-languages.md: its snippets run, and its settings do what it says."""

import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support import ROOT
from tests.support.harness import LiveNode

PAGE = ROOT / "docs" / "clients-in-other-languages.md"


def test_the_snippets_of_python_run_as_they_are(
    shared_node: LiveNode, capsys: pytest.CaptureFixture[str]
) -> None:
    snippets = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(snippets) == 3
    names: dict[str, Any] = {}
    for snippet in snippets:
        exec(snippet.replace("7711", str(shared_node.port)), names)
    lines = capsys.readouterr().out.split("\n")[:-1]
    assert sorted(lines) == sorted(["hello world", *(f"hello {n}" for n in range(100))])
    assert shared_node.ask("QLEN", "greetings") == 0
    names["node"].close()
    names["worker"].close()


def test_the_options_of_a_url_are_those_of_the_client() -> None:
    [url] = re.findall(r"`(redis://[^`]*)`", PAGE.read_text())
    with redis.Redis.from_url(url) as client:
        options = client.connection_pool.connection_kwargs
    assert (options["port"], options["socket_timeout"]) == (7711, 20)


class LossyProxy:
    """The way to a node; the connection breaks instead of each reply to an ADDJOB.

    Attributes:
        port: where it listens.
    """

    def __init__(self, node: LiveNode) -> None:
        self._node = node
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(client,)))
            self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection((self._node.host, self._node.port)) as node:
            while request := client.recv(65536):
                node.sendall(request)
                reply = node.recv(65536)
                if b"ADDJOB" in request:
                    return
                client.sendall(reply)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)


@pytest.fixture
def lossy(shared_node: LiveNode) -> Iterator[LossyProxy]:
    proxy = LossyProxy(shared_node)
    yield proxy
    proxy.close()


@pytest.mark.parametrize("retry", [None, Retry(NoBackoff(), 0)], ids=["none", "zero"])
def test_with_these_settings_a_lost_reply_is_an_error_and_one_job(
    shared_node: LiveNode, lossy: LossyProxy, retry: Retry | None
) -> None:
    options: dict[str, Any] = {"retry": retry}
    with redis.Redis(port=lossy.port, **options) as client:
        with pytest.raises(redis.ConnectionError):
            client.execute_command("ADDJOB", "lossy", "body", 0)
        assert client.execute_command("QLEN", "lossy") == 1
        shared_node.ask("GETJOB", "FROM", "lossy")
