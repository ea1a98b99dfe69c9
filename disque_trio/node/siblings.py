"""The processes of one server among each other: they accept clients at one port, and hand clients
over to the one that serves them best (``client_place`` decides).

Each process listens on a unix socket with an abstract name, and is connected to that of each other
process that serves. A connection is handed over as a descriptor, with what is known of the client.
One process reads from it at any time:

1. The old process stops reading, and sends OFFER with the descriptor.
2. The new one replies READY if it could serve the client, or REFUSED.
3. The old one sends TAKE, closes its descriptor and forgets the client; or KEEP, if the client is
   gone, or READY came late. From TAKE on, the new one serves it.

Until TAKE is sent, whatever happens to the other process, the old one serves the client on.
Once a second each one also tells the others its figures and what is wrong with it, for INFO:
FIGURES and ALARMS. RESTART, DUMP (write the jobs) and APPLY (go on as configured) ask another one
to do that; it replies DONE, with what went wrong (``together``). Processes of older releases ignore
all of these.

Only processes of the same user may connect; others cannot bind the names, which are not known
before they are bound.
"""

import hashlib
import math
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence

import trio

from disque_trio.health.lines import AlarmLine
from disque_trio.node.core.client_place import FOREVER, REST, ClientPlace, subject
from disque_trio.node.core.node import Node
from disque_trio.node.core.queues.owners import able
from disque_trio.node.handed_client import HandedClient, pack, unpack
from disque_trio.node.sibling_table import (
    APPLY,
    DUMP,
    RESTART,
    SiblingReport,
    SiblingTable,
    read_report,
)
from disque_trio.notation.addresses import host_of
from disque_trio.process.logs import Log
from disque_trio.resp.command import encode_command
from disque_trio.resp.request import RequestParser
from disque_trio.respserver.acl.user import User
from disque_trio.respserver.client import Client
from disque_trio.respserver.commands.info import Fields
from disque_trio.respserver.io.acceptor import Acceptor
from disque_trio.respserver.io.beside import Beside
from disque_trio.respserver.io.connection import Connection
from disque_trio.respserver.io.engine import Engine
from disque_trio.respserver.io.listeners import admitting
from disque_trio.respserver.io.movable import Look, MovableConnection
from disque_trio.respserver.over_budget import connections_refused

_IDS = 1_000_000_000  # clients of each process; the next one's have ids above
_LONGEST = 128 * 1024  # bytes of a message; a client that has sent more stays for now
_MOST_OFFERS = 64  # clients that wait for another process, at each
_PATIENCE = 0.5  # s until a client that was offered is served here after all
_EACH = 1.0  # s between two reports of figures ...
_SHARE = 50  # ... which take at most one part in this many of the time
_QUEUES_A_STEP = 1_000
_ANSWERS = 300.0  # s that another process may take to write its jobs ...
_RETURNS = 600.0  # ... and then to load them
_FORM = b"1"  # of the messages; a process of another release may have another one
_CREDENTIALS = struct.Struct("3i")  # process, user and group at the other end


class _Link(Beside):
    """A connection to another process. ``ours``: this one opened it, and hands clients over by it.

    Attributes:
        number: of that process; -1: not known yet.
        id: of its node; empty: not known yet.
        offers: clients that were offered to that process, by number.
        late: it has not answered one in time, and gets no further ones until it says something.
        held: clients that were offered to this process, by number: what is known, their requests,
            and the socket.
    """

    def __init__(self, siblings: "Siblings", sock: socket.socket, ours: bool, number: int) -> None:
        self.sock = sock
        self.ours = ours
        self.number = number
        self.id = b""
        self.offers: dict[int, _Offer] = {}
        self.late = False
        self.held: dict[int, tuple[HandedClient, list[list[bytes]], socket.socket]] = {}
        self._siblings = siblings

    def ready(self, mask: int, now: int) -> None:
        self._siblings.hear(self)


class _Entrance(Beside):
    """The socket at which other processes connect."""

    def __init__(self, siblings: "Siblings", sock: socket.socket) -> None:
        self.sock = sock
        self._siblings = siblings

    def ready(self, mask: int, now: int) -> None:
        self._siblings.let_in()


class _Offer:
    """A client that was offered to another process, and the requests that it gets with it.

    Attributes:
        until: when it is served here after all, by trio's clock.
    """

    def __init__(self, connection: Connection, requests: list[list[bytes]]) -> None:
        self.connection = connection
        self.requests = requests
        self.until = trio.current_time() + _PATIENCE


class Siblings:
    """The other processes of the server, as this one sees them.

    Args:
        number: of this process. count: how many there are.
        server: a name that only they know.
        report: returns what this one tells the others, given how many jobs are queued.

    Attributes:
        number, count, log: as given.
        handed_over, taken_over: clients.
    """

    def __init__(
        self,
        engine: Engine,
        node: Node,
        number: int,
        count: int,
        server: str,
        report: Callable[[int], SiblingReport],
        log: Log,
    ) -> None:
        self.number = number
        self.count = count
        self.handed_over = 0
        self.taken_over = 0
        self._engine = engine
        self._node = node
        self._server = server
        self._report = report
        self._queued = 0  # jobs, when they were last counted
        self._table = SiblingTable(number, count)
        self._obey: Callable[[bytes], str | None] = lambda what: "ERR not yet"
        self._answers: dict[int, str] = {}
        self._came: set[int] = set()  # processes that began to serve
        self._heard = trio.Event()  # one of both has changed, or a process has ended
        self._nursery: trio.Nursery | None = None
        self.log = log
        self._acceptors: list[Acceptor] = []
        self._common: set[int] = set()  # ports
        self._entrance: _Entrance | None = None
        self._links: list[_Link] = []
        self._by_id: dict[bytes, _Link] = {}  # those by which clients can be handed over
        self._numbers = 0
        self._offered = trio.Event()
        self._closed = False
        # A client keeps its id when it is handed over.
        engine.clients.next_id = number * _IDS + 1

    # ---- from start to stop ---------------------------------------------------------------------

    async def run(
        self, shared: Sequence[socket.socket], over_tls: Sequence[socket.socket] = ()
    ) -> None:
        """Accept clients at the listening sockets ``shared`` by all, and hand them over, until
        cancelled; those of ``over_tls`` are not handed over."""
        self._open()
        engine = self._engine
        self._common = {listener.getsockname()[1] for listener in (*shared, *over_tls)}
        self._acceptors = [
            Acceptor(listener, engine, admitting(listener, engine, self._look))
            for listener in shared
        ]
        self._acceptors += [
            Acceptor(listener, engine, admitting(listener, engine, tls=True))
            for listener in over_tls
        ]
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for acceptor in self._acceptors:
                    nursery.start_soon(acceptor.run)
                nursery.start_soon(self._tell_figures)
                while True:
                    with trio.move_on_at(self._withdraw_late()):
                        await self._offered.wait()
                    self._offered = trio.Event()
        finally:
            self.close()

    def _open(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.setblocking(False)
        try:
            sock.bind(self._name(self.number))
            sock.listen(self.count)
        except OSError as problem:
            sock.close()
            self.log.warning("no clients are handed over", reason=str(problem))
            return
        self._entrance = _Entrance(self, sock)
        self._engine.attend(sock.fileno(), self._entrance)
        for number in range(self.count):
            if number != self.number:
                self._connect(number)

    def close(self) -> None:
        """Leave new clients to the others, and hand over no more."""
        if self._closed:
            return
        self._closed = True
        for acceptor in self._acceptors:
            acceptor.close()
        if self._entrance is not None:
            self._engine.leave(self._entrance.sock.fileno())
            self._entrance.sock.close()
        for link in list(self._links):
            self._drop(link)

    def _name(self, number: int) -> bytes:
        return b"\0disque-%b-%d" % (self._server.encode(), number)

    def _connect(self, number: int) -> None:
        """Connect to a process, unless this one is connected or nobody is there."""
        if any(link.ours and link.number == number for link in self._links):
            return
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.setblocking(False)
        try:
            sock.connect(self._name(number))
        except OSError:
            sock.close()  # when it starts, it connects to this one
            return
        if not _is_same_user(sock):
            sock.close()
            return
        self._add(sock, True, number, [b"HERE", b"%d" % self.number, _FORM])
        self._tell([link for link in self._links if link.number == number])

    def let_in(self) -> None:
        """Accept the connection of another process."""
        assert self._entrance is not None
        try:
            sock, _ = self._entrance.sock.accept()
        except OSError:
            return
        sock.setblocking(False)
        if not _is_same_user(sock):
            sock.close()
            return
        self._add(sock, False, -1, [b"NODE", self._node.id, _FORM])

    def _add(self, sock: socket.socket, ours: bool, number: int, greeting: list[bytes]) -> None:
        link = _Link(self, sock, ours, number)
        if not ours:
            link.id = self._node.id  # as told
        self._links.append(link)
        self._engine.attend(sock.fileno(), link)
        self._send(link, greeting)

    def _drop(self, link: _Link) -> None:
        """The other process has ended, or is to be told no more."""
        if link not in self._links:
            return
        self._links.remove(link)
        self._engine.leave(link.sock.fileno())
        link.sock.close()
        if self._by_id.get(link.id) is link:
            del self._by_id[link.id]
        for _, _, sock in link.held.values():
            sock.close()  # it was not taken
        for offer in link.offers.values():
            self._serve_on(offer)
        link.held = {}
        link.offers = {}
        if not any(other.number == link.number and not other.ours for other in self._links):
            self._table.gone(link.number)
        self._note()
        for acceptor in self._acceptors:
            acceptor.look_again()
        if link.ours and link.id and not self._closed:
            self._connect(link.number)  # unless it has ended

    # ---- messages -------------------------------------------------------------------------------

    def _send(self, link: _Link, words: Sequence[bytes], again: bool = False) -> bool:
        """Send a message; if that is not possible, drop the link. ``again``: the message will be
        sent again, so who is busy may miss it."""
        try:
            link.sock.send(encode_command(words))
        except OSError as error:
            if not (again and isinstance(error, BlockingIOError)):
                self._drop(link)
            return False
        return True

    def hear(self, link: _Link) -> None:
        """Handle the messages of another process."""
        while link in self._links:
            try:
                data, extras, _, _ = link.sock.recvmsg(
                    _LONGEST, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except OSError:
                data, extras = b"", []
            fds = [
                int.from_bytes(extra[:4], "little")
                for level, kind, extra in extras
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            ]
            if not data:
                self._drop(link)
                return
            link.late = False
            try:
                requests = RequestParser().feed(data)
                self._handle(link, requests[0][0], requests[0][1:], requests[1:], fds)
            except (ValueError, TypeError, LookupError, OSError) as problem:
                self.log.warning("another process cannot be understood", reason=repr(problem))
                self._drop(link)

    def _handle(
        self,
        link: _Link,
        kind: bytes,
        words: list[bytes],
        requests: list[list[bytes]],
        fds: list[int],
    ) -> None:
        if kind == b"OFFER":
            sock = socket.socket(fileno=fds[0]) if fds else None  # there may be no room for more
            self._hear_offer(link, int(words[0]), unpack(words[1:]), requests, sock)
        elif kind == b"READY":
            self._give(link, int(words[0]))
        elif kind == b"REFUSED":
            if offer := link.offers.pop(int(words[0]), None):
                self._serve_on(offer)
        elif kind == b"TAKE":
            self._take(*link.held.pop(int(words[0])))
        elif kind == b"KEEP":
            link.held.pop(int(words[0]))[2].close()
        elif words[1] != _FORM:
            self._drop(link)
        elif kind == b"NODE":
            self._by_id.pop(link.id, None)
            link.id = words[0]
            self._by_id[link.id] = link
        elif kind == b"HERE":
            link.number = int(words[0])
            self._connect(link.number)
            self._came.add(link.number)
            self._note()
        elif kind == b"FIGURES":
            self._table.heard(int(words[0]), read_report(words[2:]), trio.current_time())
        elif kind == b"ALARMS":
            self._table.heard_alarms(int(words[0]), words[2:])
        elif kind in (RESTART, DUMP, APPLY):
            problem = self._obey(kind) or ""
            self._send(link, [b"DONE", b"%d" % self.number, _FORM, problem.encode()])
        elif kind == b"DONE":
            self._answers[int(words[0])] = words[2].decode("utf-8", "replace")
            self._note()

    # ---- what all processes do together ---------------------------------------------------------

    def obey(self, obey: Callable[[bytes], str | None]) -> None:
        """Do what others ask for with ``obey``, which returns what went wrong."""
        self._obey = obey

    @property
    def is_open(self) -> bool:
        """Whether this process serves, and so can ask others."""
        return self._nursery is not None

    def spawn(self, task: Callable[..., Awaitable[None]], *words: object) -> None:
        """Start a task that may ask others."""
        assert self._nursery is not None
        self._nursery.start_soon(task, *words)

    def others(self) -> list[int]:
        """The numbers of the other processes."""
        return [number for number in range(self.count) if number != self.number]

    def is_common(self, client: Client) -> bool:
        """Whether ``client`` has connected to the server, not to one process of it."""
        connection = self._engine.clients.by_id.get(client.id)
        if self.number == 0 or connection is None or connection.unix:
            return self.number == 0
        return connection.sock.getsockname()[1] in self._common

    async def ask(self, number: int, what: bytes) -> str | None:
        """Ask another process for RESTART, DUMP or APPLY. Returns what went wrong, or empty; None:
        it does not serve."""
        links = [link for link in self._links if link.ours and link.number == number and link.id]
        self._answers.pop(number, None)
        self._came.discard(number)
        if not links or not self._send(links[0], [what, b"%d" % self.number, _FORM]):
            return None
        with trio.move_on_after(_ANSWERS):
            while number not in self._answers:
                if links[0] not in self._links:
                    return "it has ended"
                await self._heard.wait()
            return self._answers.pop(number)
        return "it does not answer"

    async def comes_back(self, number: int) -> bool:
        """Wait until the other process serves that was asked to restart."""
        with trio.move_on_after(_RETURNS):
            while number not in self._came:
                await self._heard.wait()
            return True
        return False

    def _note(self) -> None:
        self._heard.set()
        self._heard = trio.Event()

    # ---- handing over ---------------------------------------------------------------------------

    def _look(self) -> Look:
        """Return what looks at the requests of a new client."""
        return _Looker(self, ClientPlace()).look

    def look(
        self, place: ClientPlace, connection: MovableConnection, requests: list[list[bytes]]
    ) -> int:
        """Hand ``connection`` over if others serve it better, with its ``requests``, which are then
        taken away. Returns after how many more to look again."""
        client = connection.client
        if client.consumes or client.monitor:
            return FOREVER
        if self._engine.halted or self._engine.paused or not connection.at_rest:
            return 0
        if not self._by_id:
            return REST
        node = self._node
        here = {*self._by_id, node.id}
        nodes = [id for id in able(node.peers, node.id) if id in here]
        if not nodes:
            return REST
        first = node.id if self.number == 0 else b""
        for link in self._by_id.values():
            if link.number == 0:
                first = link.id
        place.look((subject(node, request) for request in requests), node.id, first, nodes)
        if place.to:
            self._offer(self._by_id[place.to], place, connection, requests)
        return place.rest

    def _offer(
        self,
        link: _Link,
        place: ClientPlace,
        connection: MovableConnection,
        requests: list[list[bytes]],
    ) -> None:
        """Offer ``connection`` to another process, if that is possible now."""
        if link.late or len(link.offers) >= _MOST_OFFERS:
            return
        client = connection.client
        self._numbers += 1
        handed = HandedClient(
            id=client.id,
            address=connection.address,
            created=connection.created,
            active=connection.active,
            user=client.user.name,
            rules=_rules(client.user),
            resp=client.resp,
            name=client.name,
            lib_name=client.lib_name,
            lib_ver=client.lib_ver,
            last_command=client.last_command,
            looks=place.looks,
            home=int(place.home),
            rest=place.rest,
        )
        message = pack(b"OFFER", self._numbers, handed, requests)
        if len(message) > _LONGEST:
            return
        try:
            socket.send_fds(link.sock, [message], [connection.fd])
        except OSError:
            return  # it is busy, or ends
        link.offers[self._numbers] = _Offer(connection, requests[:])
        requests.clear()
        self._engine.clients.set_aside(connection)
        self._offered.set()

    def _give(self, link: _Link, number: int) -> None:
        """The other process is ready to serve a client: let it."""
        offer = link.offers.pop(number, None)
        word = b"%d" % number
        if offer is None or offer.connection.closed:
            self._send(link, [b"KEEP", word])
        elif self._send(link, [b"TAKE", word]):
            self.handed_over += 1
            self._engine.clients.close(offer.connection)
        else:
            self._serve_on(offer)

    def _serve_on(self, offer: _Offer) -> None:
        """Serve a client here after all."""
        if not offer.connection.closed:
            self._engine.go_on(offer.connection, offer.requests)
            self._engine.ask_turn()

    def _withdraw_late(self) -> float:
        """Serve those clients here that others leave waiting; return when to look again."""
        now = trio.current_time()
        due = math.inf
        for link in self._links:
            for number, offer in list(link.offers.items()):
                if offer.until <= now:
                    link.late = True
                    self._serve_on(link.offers.pop(number))
                else:
                    due = min(due, offer.until)
        return due

    # ---- taking over ----------------------------------------------------------------------------

    def _hear_offer(
        self,
        link: _Link,
        number: int,
        handed: HandedClient,
        requests: list[list[bytes]],
        sock: socket.socket | None,
    ) -> None:
        if link.id != self._node.id:  # CLUSTER RESET HARD
            link.id = self._node.id
            self._send(link, [b"NODE", link.id, _FORM])
        if sock is not None and self._may_take(handed):
            link.held[number] = (handed, requests, sock)
            self._send(link, [b"READY", b"%d" % number])
        else:
            if sock is not None:
                sock.close()
            self._send(link, [b"REFUSED", b"%d" % number])

    def _may_take(self, handed: HandedClient) -> bool:
        """Whether this process can serve a client as the other one did."""
        engine = self._engine
        config = engine.config
        clients = engine.clients
        user = self._user(handed)
        return not (
            self._closed
            or engine.halted
            or self._node.peers.leaving
            or user is None
            or connections_refused(self._node, user)
            or len(clients.connections) >= config.maxclients
            or 0 < config.maxclients_per_ip <= clients.origins.count(host_of(handed.address))
        )

    def _user(self, handed: HandedClient) -> User | None:
        """The user of a client; None: it is not the same here."""
        user = self._node.users.by_name.get(handed.user)
        return user if user is not None and _rules(user) == handed.rules else None

    def _take(self, handed: HandedClient, requests: list[list[bytes]], sock: socket.socket) -> None:
        """Serve a client from now on."""
        user = self._user(handed)
        if user is None:
            sock.close()  # as others whose user has changed
            return
        self.taken_over += 1
        clients = self._engine.clients
        place = ClientPlace(handed.looks, bool(handed.home))
        connection = clients.add(
            sock, handed.address, False, None, _Looker(self, place).look, handed.id
        )
        assert isinstance(connection, MovableConnection)
        connection.created = handed.created
        connection.active = handed.active
        connection.rest = handed.rest
        clients.origins.enter(connection.fd, host_of(handed.address))
        client = connection.client
        client.log_in(user)
        client.resp = handed.resp
        client.name = handed.name
        client.lib_name = handed.lib_name
        client.lib_ver = handed.lib_ver
        client.last_command = handed.last_command
        connection.parser.trusted = True
        self._engine.go_on(connection, requests)
        self._engine.ask_turn()

    # ---- figures --------------------------------------------------------------------------------

    async def _tell_figures(self) -> None:
        """Tell the others the figures of this process again and again."""
        while True:
            spent = await self._count_queued()
            self._tell(list(self._links))
            await trio.sleep(max(_EACH, _SHARE * spent))

    async def _count_queued(self) -> float:
        """Count the queued jobs, some queues at a time. Returns the seconds that it took."""
        began = trio.current_time()
        spent = 0.0
        queued = counted = 0
        for shard in self._node.queues.index.shards:
            if not shard:
                continue
            queued += sum([queue.length for queue in shard.values()])
            counted += len(shard)
            if counted >= _QUEUES_A_STEP:
                counted = 0
                spent += trio.current_time() - began
                await trio.lowlevel.checkpoint()
                began = trio.current_time()
        self._queued = queued
        return spent + trio.current_time() - began

    def _tell(self, links: Sequence[_Link]) -> None:
        """Tell the figures of this process to those that are at the other ends of ``links``."""
        report = self._report(self._queued)
        about = {b"FIGURES": report.words(), b"ALARMS": report.alarm_words()}
        for kind, words in about.items():
            for link in links:
                if link.ours and link in self._links:
                    self._send(link, [kind, b"%d" % self.number, _FORM, *words], again=True)

    def alarms(self) -> list[AlarmLine]:
        """What is wrong with the other processes."""
        return self._table.alarms()

    def silent(self) -> list[tuple[int, str]]:
        """The other processes that do not answer, and what they are."""
        return self._table.silent(trio.current_time()) if self.is_open else []

    def processes(self) -> Fields:
        """What INFO processes tells."""
        own = self._report(self._queued)
        return self._table.fields(own, self._node.loading, trio.current_time())

    # ---- the rest -------------------------------------------------------------------------------

    def figures(self) -> dict[str, int]:
        """What INFO stats tells."""
        return {
            "connections_handed_over": self.handed_over,
            "connections_taken_over": self.taken_over,
        }

    def reset(self) -> None:
        """Set the counters to zero."""
        self.handed_over = self.taken_over = 0


class _Looker:
    """Looks at the requests of one client."""

    def __init__(self, siblings: Siblings, place: ClientPlace) -> None:
        self._siblings = siblings
        self._place = place

    def look(self, connection: MovableConnection, requests: list[list[bytes]]) -> int:
        """See ``Look``."""
        try:
            return self._siblings.look(self._place, connection, requests)
        except Exception:
            # Nothing that a client sends may stop the node.
            self._siblings.log.warning("a client is not handed over", exc_info=True)
            return FOREVER


def _rules(user: User) -> bytes:
    """What a user may do, and its passwords, in short."""
    return hashlib.blake2b(user.describe(), digest_size=16).digest()


def _is_same_user(sock: socket.socket) -> bool:
    """Whether the process at the other end runs as the same user."""
    size = _CREDENTIALS.size
    _, user, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.geteuid())
