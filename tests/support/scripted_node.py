"""A node with scripted replies, for tests of clients."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import hiredis

from tests.support.harness import HANG_SECONDS

Answer = Callable[[list[bytes]], bytes | None]


class ScriptedNode:
    """Answers each request with the result of ``answer``; None closes the connection.

    Attributes:
        address: its address. requests: all requests so far.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.requests: list[list[bytes]] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, suppress(OSError):  # the client may be gone
                self._converse(connection)

    def _converse(self, connection: socket.socket) -> None:
        reader = hiredis.Reader()
        while data := connection.recv(65536):
            reader.feed(data)
            while (request := reader.gets()) is not False:
                assert isinstance(request, list)
                self.requests.append(request)
                answer = self._answer(request)
                if answer is None:
                    return
                connection.sendall(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(HANG_SECONDS)
