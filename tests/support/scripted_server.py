"""A RESP server with scripted replies, in a thread of the test process."""

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from disque_trio.cli.resp import read_reply
from tests.support.harness import HANG_SECONDS

HANG_UP = b"<hang up>"

Answer = Callable[[list[bytes]], bytes]


class ScriptedServer(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.seen: list[list[bytes]] = []
        self.open: set[socket.socket] = set()
        self.changed = threading.Condition()

    @property
    def port(self) -> str:
        return str(self.server_address[1])

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, timeout=HANG_SECONDS)

    def drop_clients(self) -> None:
        for client in list(self.open):
            client.shutdown(socket.SHUT_RDWR)
        self.wait_for(lambda: not self.open)


class _Handler(socketserver.StreamRequestHandler):
    server: ScriptedServer

    def handle(self) -> None:
        server = self.server
        server.open.add(self.request)
        try:
            while True:
                command = [element.text for element in read_reply(self.rfile).elements]  # type: ignore[arg-type]
                with server.changed:
                    server.seen.append(command)
                    server.changed.notify_all()
                answer = server.answer(command)
                if answer == HANG_UP:
                    return
                self.wfile.write(answer)
        except (EOFError, OSError):
            return
        finally:
            self.request.close()
            with server.changed:
                server.open.discard(self.request)
                server.changed.notify_all()


@contextmanager
def scripted_server(answer: Answer) -> Iterator[ScriptedServer]:
    with ScriptedServer(answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            for client in list(server.open):
                client.close()
