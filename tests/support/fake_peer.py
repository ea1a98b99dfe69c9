"""Another node of the cluster, played by a test: it speaks the bus protocol as told."""

import secrets
import socket
from types import TracebackType

from disque_trio.protocol.bus import (
    GOTJOB,
    MEET,
    PING,
    PONG,
    REPLJOB,
    PacketWriter,
    packet_type,
    read_about_job,
    read_jobs,
)
from disque_trio.protocol.packet_parser import PacketParser
from disque_trio.protocol.serialjob import decode_job
from tests.support.harness import BUS_OFFSET, HANG_SECONDS, LiveNode, Wire, free_port

HOST = "127.0.0.1"


class BusWire:
    """A bus connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(HANG_SECONDS)
        self.got: list[bytes] = []
        self._parser = PacketParser()

    def send(self, *packets: bytes) -> None:
        """Send packets."""
        self.sock.sendall(b"".join(packets))

    def read(self) -> bytes:
        """The next packet. Raises EOFError if the node closed the connection."""
        while not self.got:
            try:
                data = self.sock.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                raise EOFError("the node closed the connection")
            self.got += self._parser.feed(data)
        return self.got.pop(0)

    def there(self) -> list[bytes]:
        """All packets already received."""
        self.sock.setblocking(False)
        try:
            while data := self.sock.recv(1 << 20):
                self.got += self._parser.feed(data)
        except BlockingIOError:
            pass
        self.sock.settimeout(HANG_SECONDS)
        found, self.got = self.got, []
        return found

    def closed(self) -> bool:
        """Wait for the node to close the connection; packets before that are dropped."""
        try:
            while True:
                self.read()
        except EOFError:
            return True

    def close(self) -> None:
        self.sock.close()


def bus_wire(node: LiveNode, host: str = HOST) -> BusWire:
    """A connection to the bus of ``node``, from no node in particular."""
    return BusWire(socket.create_connection((host, node.port + BUS_OFFSET), timeout=HANG_SECONDS))


class FakePeer:
    """A member of the cluster of one real node.

    Attributes:
        id: 40 bytes. packets: makes its packets.
        to_node: the connection that it opened. from_node: the one that the node opened.
    """

    def __init__(self, node: LiveNode) -> None:
        self.node = node
        self.id = secrets.token_hex(20).encode()
        self.port = free_port()
        self.packets = PacketWriter(self.id, self.port)
        self._listener = socket.create_server((HOST, self.port + BUS_OFFSET))
        self._listener.settimeout(HANG_SECONDS)
        self.to_node = bus_wire(node)
        self.from_node: BusWire
        self._copied: dict[bytes, None] = {}  # ids, in their order
        self._told = 0  # how many of them ``copies`` has returned

    def __enter__(self) -> "FakePeer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.to_node.close()
        if hasattr(self, "from_node"):
            self.from_node.close()
        self._listener.close()

    def accept(self) -> BusWire:
        """Wait for the node to connect."""
        sock, _ = self._listener.accept()
        if hasattr(self, "from_node"):
            self.from_node.close()
        self.from_node = BusWire(sock)
        return self.from_node

    def join(self) -> "FakePeer":
        """Become a member: send MEET, and answer the node when it connects back."""
        self.to_node.send(self.packets.gossip(MEET, []))
        assert packet_type(self.to_node.read()) == PONG
        self.accept()
        first = self.from_node.read()
        assert packet_type(first) in (PING, MEET)
        self.from_node.send(self.packets.gossip(PONG, []))
        # Once it has answered a PING, it has processed everything before it.
        self._ping(self.from_node)
        self.ping()
        return self

    def ping(self) -> None:
        """Wait until the node has processed everything sent to it."""
        self._ping(self.to_node)

    def _ping(self, wire: BusWire) -> None:
        wire.send(self.packets.gossip(PING, []))
        while packet_type(wire.read()) != PONG:
            pass

    def expect(self, type: int, count: int = 1) -> list[bytes]:
        """The next ``count`` packets of ``type``. PINGs are answered, other packets dropped."""
        found: list[bytes] = []
        while len(found) < count:
            packet = self.from_node.read()
            if packet_type(packet) == type:
                found.append(packet)
            elif packet_type(packet) == PING:
                self.from_node.send(self.packets.gossip(PONG, []))
        return found

    def copies(self, count: int = 1) -> list[bytes]:
        """Ids of the next ``count`` jobs for which the node wants copies. Repeated requests, for
        unconfirmed jobs, count once."""
        begin, self._told = self._told, self._told + count
        while len(self._copied) < self._told:
            [packet] = self.expect(REPLJOB)  # with the jobs of one turn
            self._copied.update(dict.fromkeys(decode_job(job).id for job in read_jobs(packet).jobs))
        return list(self._copied)[begin : self._told]

    def confirm(self, *ids: bytes) -> None:
        """Confirm that it holds these jobs."""
        self.to_node.send(*(self.packets.about_job(GOTJOB, id, 1) for id in ids))


def about(packet: bytes) -> bytes:
    """The id of the job in a packet."""
    return read_about_job(packet).id


def add(wire: Wire, queue: str, body: bytes | str | int, *options: str | int) -> None:
    """Send an ADDJOB with one copy on another node, without waiting for its reply."""
    wire.send("ADDJOB", queue, body, 0, "REPLICATE", 2, *options)
