"""Goes to the node that is best for a queue, where its producers and consumers meet.

Asks the node in use (QOWNER) beside the first command about a queue, and again from time to time.
Owns the sessions with other nodes, the guests. They are opened in the background, so that nothing
waits for them, and closed when they are not used. A node that cannot be reached, is lost or refuses
commands is avoided for a while; whoever went there goes on at the node in use.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from disque_trio.client.nodes import Node
from disque_trio.client.owners import Owners, parse_owners
from disque_trio.client.session import Session, open_session
from disque_trio.respclient.concurrency import Nursery, library
from disque_trio.respclient.connection import Batch, Connector
from disque_trio.respclient.errors import (
    AuthError,
    ConnectionLost,
    DisqueError,
    LoadingError,
    MisconfError,
    NoExtError,
    NoPermError,
    NoReplError,
    OOMError,
    ProtocolError,
    ReplyError,
)
from disque_trio.respclient.log import library_log
from disque_trio.respclient.values import Name

IDLE: Final = 60.0
"""Seconds until a guest that is not used is closed."""

_LOOK: Final = 1.0  # s between looks at what is unused, and at what is followed
_SOON: Final = 0.1  # s that a consumer waits for jobs while the best node is asked for or opened
_MOST_IDS: Final = 10_000  # of jobs that were taken
_REFUSALS: Final = (AuthError, LoadingError, MisconfError, NoExtError, NoPermError, OOMError)
_SHORT: Final = "Memory is short"

_log = library_log("disque.client")


class Followed(Protocol):
    """Jobs that are pushed by a node."""

    @property
    def queues(self) -> Sequence[Name]:
        """The queues whose jobs they are."""

    @property
    def session(self) -> Session:
        """The session with the node."""

    @property
    def over(self) -> bool:
        """Whether no more come."""

    def move(self) -> None:
        """Take no more jobs here, since another node is better now."""


def refuses(error: object, *, repeat: bool) -> bool:
    """Whether a command may run on another node, after this reply. ``repeat``: even if it may have
    run here."""
    if isinstance(error, NoReplError):
        return repeat and error.message.startswith(_SHORT)
    return isinstance(error, _REFUSALS)


class Hints:
    """What nodes are best for queues, and the sessions with them.

    Args:
        connector: opens connections.
        nursery: runs what happens in the background.
        find: finds the node in use, or another one if it is lost.
    """

    def __init__(
        self, connector: Connector, nursery: Nursery, find: Callable[[], Awaitable[Session]]
    ) -> None:
        self._connector = connector
        self._nursery = nursery
        self._find = find
        self._owners = Owners()
        self._home: Session | None = None  # who was asked last
        self._guests: dict[str, Session] = {}
        self._opening: set[str] = set()
        self._followed: dict[Followed, None] = {}
        self._taken: dict[str, str] = {}  # ids of jobs, and of the nodes that gave them
        self._reported: set[str] = set()
        self._looks = False
        self._closed = False

    # ---- where to go ------------------------------------------------------------------------

    def best(self, home: Session, queues: Sequence[Name], *, adds: bool = False) -> Session:
        """Return the session with the node that is best for ``queues``, as far as is known and it
        can be used at once, else ``home``. ``adds``: to add jobs."""
        if not home.hints or not queues:
            return home
        now = library().current_time()
        if home is not self._home:
            self._home = home
            self._owners.ask_again(now)
        if due := self._owners.due(queues, now):
            batch = home.submit("QOWNER", *due)
            self._nursery.start_soon(self._hear, home, due, batch)
        node = self._owners.best(queues, now)
        if node is None or node.id == home.node_id:
            return home
        guest = self._guests.get(node.id)
        if guest is not None and not guest.current:
            self.avoid(guest)
            return home
        if guest is None or (adds and not guest.ready("adds")):
            if node.id not in self._opening:
                self._opening.add(node.id)
                self._nursery.start_soon(self._open, node, adds)
            return home
        guest.used = now
        return guest

    def node_for(self, queues: Sequence[Name]) -> str | None:
        """Return the id of the node that is best for ``queues``; None: it is not known."""
        node = self._owners.best(queues, library().current_time())
        return None if node is None else node.id

    def patience(self, session: Session, queues: Sequence[Name]) -> float | None:
        """Return how long to wait for jobs of ``queues`` at this node, before asking ``best``
        again; None: as long as it takes."""
        home = self._home
        if home is None or not home.hints or not queues:
            return None
        now = library().current_time()
        node = self._owners.best(queues, now)
        if node is None and not self._owners.known(queues):
            return _SOON  # it is being asked
        if node is not None and node.id != session.node_id:
            return _SOON  # it is being connected to
        return max(self._owners.left(queues, now), _SOON)

    # ---- jobs by their ids ------------------------------------------------------------------

    def taken(self, session: Session, ids: Sequence[str]) -> None:
        """Note which node gave these jobs; of most, the id says so."""
        for id in ids:
            if not _made_by(id, session):
                self._taken[id] = session.node_id
        while len(self._taken) > _MOST_IDS:
            del self._taken[next(iter(self._taken))]

    def holder(self, id: str) -> Session | None:
        """Return the guest that gave this job, or to which it was added."""
        node_id = self._taken.get(id)
        if node_id is not None:
            return self._guests.get(node_id)
        return next((guest for guest in self._guests.values() if _made_by(id, guest)), None)

    def holders(self, ids: Sequence[str]) -> Iterable[tuple[Session | None, list[str]]]:
        """Return the same for many jobs: those of each guest, and the others, together."""
        if not self._guests or not ids:
            return [(None, list(ids))]
        found: dict[Session | None, list[str]] = {}
        for id in ids:
            found.setdefault(self.holder(id), []).append(id)
        return found.items()

    # ---- what becomes of guests -------------------------------------------------------------

    def is_guest(self, session: Session) -> bool:
        """Whether this is not the session with the node in use."""
        return self._guests.get(session.node_id) is session

    def avoid(self, guest: Session, *, lost: bool = True) -> None:
        """Go elsewhere for a while; ``lost``: the node cannot be reached."""
        self._owners.avoid(guest.node_id, library().current_time())
        if lost:
            self._drop(guest)

    def move_in(self, session: Session) -> Session:
        """Return the guest at the node of ``session``, if there is one, in its place: this node
        becomes the one in use."""
        guest = self._guests.pop(session.node_id, None)
        if guest is None or not guest.current:
            return session
        session.close()
        return guest

    def follow(self, pushes: Followed) -> None:
        """Move ``pushes`` whenever another node is best."""
        self._followed[pushes] = None
        self._look_regularly()

    def close(self) -> None:
        """Close all guests, and open no others."""
        self._closed = True
        for guest in self._guests.values():
            guest.close()

    def _drop(self, guest: Session) -> None:
        """Make no requests at this guest any more; jobs that are held from it can be settled."""
        if self._guests.get(guest.node_id) is guest:
            del self._guests[guest.node_id]
        guest.leave()

    def _look_regularly(self) -> None:
        if not self._looks:
            self._looks = True
            self._nursery.start_soon(self._look)

    # ---- in the background ------------------------------------------------------------------

    async def _hear(self, home: Session, queues: list[Name], batch: Batch) -> None:
        await batch.done.wait()
        [reply] = batch.replies
        try:
            if isinstance(reply, DisqueError):
                raise reply
            for queue, node in zip(queues, parse_owners(reply, home.address), strict=True):
                self._owners.learn(queue, node)
        except (ReplyError, ProtocolError) as error:
            # It does not know the command, or this user may not ask.
            home.hints = isinstance(error, ReplyError) and error.code not in ("ERR", "NOPERM")
        except ConnectionLost:
            return
        self._move(home)

    async def _open(self, node: Node, adds: bool) -> None:
        try:
            guest = self._guests.get(node.id)
            if guest is None:
                guest = await open_session(self._connector, node.address)
                if guest.node_id != node.id:
                    guest.close()
                    raise ProtocolError(f"another node, {guest.node_id}, answers")
                guest.used = library().current_time()
            if adds:
                await guest.connection("adds")
        except DisqueError as error:
            self._owners.avoid(node.id, library().current_time())
            if node.id not in self._reported:
                self._reported.add(node.id)
                text = "the best node for a queue cannot be reached; going on without it"
                _log.info(text, address=str(node.address), error=str(error))
            return
        finally:
            self._opening.discard(node.id)
        if self._closed:
            guest.close()
            return
        self._guests[node.id] = guest
        self._look_regularly()
        if self._home is not None:
            self._move(self._home)

    def _move(self, home: Session) -> None:
        """Move what is followed to where it is best off now."""
        for pushes in list(self._followed):
            if pushes.over:
                del self._followed[pushes]
            elif home.current and self.best(home, pushes.queues) is not pushes.session:
                pushes.move()

    async def _look(self) -> None:
        while self._followed or self._guests:
            await library().sleep(_LOOK)
            now = library().current_time()
            for guest in list(self._guests.values()):
                if not guest.current:
                    self.avoid(guest)
                elif now - guest.used > IDLE:
                    self._drop(guest)
            if self._followed:
                with suppress(DisqueError):
                    self._move(await self._find())
        self._looks = False


def _made_by(id: str, session: Session) -> bool:
    """Whether the job was added at this node: job ids begin so."""
    return id[2:10] == session.node_id[:8]
