"""A proxy for a node that loses replies."""

import socket
import threading

from tests.support.harness import HANG_SECONDS, LiveNode, free_port


class LossyProxy:
    """A proxy that breaks the connection instead of forwarding the first replies to an ADDJOB.

    Attributes:
        host, port: where it listens. losses: the number of replies to lose.
        connections: the number of connections so far.
    """

    host = "127.0.0.1"

    def __init__(self, node: LiveNode, losses: int) -> None:
        self._node = node
        self.port = free_port()
        self._listener = socket.create_server((self.host, self.port))
        self.losses = losses
        self.connections = 0
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            node = socket.create_connection((self._node.host, self._node.port))
            self._open += [client, node]
            self._threads.append(threading.Thread(target=self._serve, args=(client, node)))
            self._threads[-1].start()

    def _serve(self, client: socket.socket, node: socket.socket) -> None:
        with client, node:
            try:
                while request := client.recv(65536):
                    node.sendall(request)
                    reply = node.recv(65536)
                    if b"ADDJOB" in request and self.losses:
                        self.losses -= 1
                        return
                    client.sendall(reply)
            except OSError:  # the client is gone
                return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join(HANG_SECONDS)
