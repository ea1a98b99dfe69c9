"""Chooses the node to talk to, and moves to another one when that fails.

Owns the current session. Chooses a node by the priorities in HELLO, moves on when the node is lost
or says -LEAVING, and repeats commands where that is safe, within a time limit. Requests about
queues go to the nodes that are best for them, if ``Hints`` knows these.
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from disque_trio.client import patience
from disque_trio.client.hints import Hints, refuses
from disque_trio.client.nodes import Directory
from disque_trio.client.session import Role, Session, open_session
from disque_trio.notation.addresses import Address
from disque_trio.resp.command import Argument
from disque_trio.respclient.concurrency import Nursery, library
from disque_trio.respclient.connection import Connector, Reply
from disque_trio.respclient.errors import (
    AuthError,
    ConnectionLost,
    DisqueError,
    LeavingError,
    LoadingError,
    NoJobError,
    NoPermError,
    ProtocolError,
    TlsError,
)
from disque_trio.respclient.retry import Retry
from disque_trio.respclient.values import Name

R = TypeVar("R")

REFUSED: Final = (AuthError, NoPermError)
"""The errors with which a node refuses to let us in."""

RETURN: Final = 5.0
"""Seconds to wait for a lost node to come back, if no other can run a command."""

_TLS_ONLY: Final = "this port is for TLS only"
"""The error with which a TLS port answers a client without TLS."""


class Router:
    """Finds a node and runs commands on it.

    Args:
        connector: opens connections.
        directory: the nodes to choose from.
        hinted: runs what going to the best nodes for queues needs; None: all requests go to one
            node.

    Attributes:
        retry_for: seconds to keep trying after a failure.
        hints: which nodes are best for queues; None: that does not matter.
    """

    def __init__(
        self,
        connector: Connector,
        directory: Directory,
        *,
        retry_for: float,
        hinted: Nursery | None = None,
    ) -> None:
        self._connector = connector
        self._directory = directory
        self.retry_for = retry_for
        self.hints: Hints | None = None
        if hinted is not None:
            self.hints = Hints(connector, hinted, lambda: self.session(Retry(0)))
        self._session: Session | None = None
        self._choosing = library().Lock()
        self._prefer: Address | None = None
        self._attempts = 0
        self._outage = patience.Outage(self._where)
        self._failure = ""
        self._closed = False

    @property
    def address(self) -> Address | None:
        """The address of the node in use; None while there is none."""
        session = self._session
        return session.address if session is not None and session.current else None

    def retry(self) -> Retry:
        """Return a fresh time limit for one request."""
        limit = patience.current()
        return Retry(self.retry_for if limit is None else limit.seconds)

    async def session_for(
        self, queues: Sequence[Name], retry: Retry, *, adds: bool = False
    ) -> Session:
        """Return the session with the node that is best for ``queues``, as far as is known; else
        that with the current node, see ``session``. ``adds``: to add jobs."""
        home = await self.session(retry)
        return self.hints.best(home, queues, adds=adds) if self.hints is not None else home

    def address_for(self, queues: Sequence[Name]) -> Address | None:
        """Return the address of the node to which jobs of these queues will go next."""
        home = self._session
        if home is None or not home.current:
            return None
        return (home if self.hints is None else self.hints.best(home, queues, adds=True)).address

    async def session(self, retry: Retry) -> Session:
        """Return the session with the current node; find a node if there is none.

        Raises:
            ConnectionLost: no node could be reached in time.
            TlsError: no node was ever reached, since TLS failed with all of them; raised at once.
            AuthError, NoPermError: the password was refused, or the user may not run HELLO.
        """
        while True:
            if self._session is not None and self._session.current and not self._closed:
                return self._session
            limit = patience.current()
            with library().move_on_after(math.inf if limit is None else limit.left) as scope:
                await self._attempt()
            if scope.cancelled_caught and limit is not None:
                silent = f"no Disque node answers within {limit.seconds:g} s: {self._where()}"
                raise ConnectionLost(self._failure or silent)
            if self._session is not None and self._session.current:
                return self._session
            if not await retry.again():
                raise ConnectionLost(self._failure)

    async def _attempt(self) -> None:
        """Look for a node once. Raises as ``session``."""
        attempts = self._attempts
        async with self._choosing:
            # If another task tried in vain while this one waited for the lock, count that as
            # an attempt of this task. Else many tasks would try the same dead nodes in turn.
            if self._attempts == attempts:
                await self._outage.during(self._choose)

    def _where(self) -> str:
        """The addresses at which to look for a node."""
        return ", ".join(map(str, self._directory.candidates(library().current_time())))

    def leave(self, session: Session) -> None:
        """Look for another node, since the one of this session said -LEAVING."""
        self._directory.avoid(session.node_id, library().current_time())
        if self.hints is not None:
            self.hints.avoid(session)
        session.leave()

    def close(self) -> None:
        """Close the sessions and open no others."""
        self._closed = True
        if self.hints is not None:
            self.hints.close()
        if self._session is not None:
            self._session.close()

    async def wait_at(
        self, use: Callable[[Session], Awaitable[R]], queues: Sequence[Name] = ()
    ) -> R:
        """Await ``use(session)`` at the current node, or the best one for ``queues``, where it may
        wait. If that node is lost or leaves, do so again at another, for up to ``retry_for``
        seconds.

        Raises:
            DisqueError: what ``use`` raised, or no node could be reached in time.
        """
        retry = self.retry()
        failed = False

        async def attempt() -> R:
            nonlocal failed
            session = await self.session_for(queues, retry)
            try:
                return await use(session)
            except LeavingError:
                self.leave(session)
                raise
            except DisqueError as error:
                failed = self.guest_failed(session, error, repeat=True)
                raise

        return await retry.run(
            attempt,
            lambda error: failed or isinstance(error, ConnectionLost | LeavingError),
            waits=True,
        )

    def guest_failed(self, session: Session, error: object, *, repeat: bool) -> bool:
        """Whether another node has to do what this one, which is not the current node, has not done
        because of ``error``; then it is avoided. ``repeat``: even if it may have done it."""
        if self.hints is None or not self.hints.is_guest(session):
            return False
        lost = isinstance(error, ConnectionLost)
        if not lost and not refuses(error, repeat=repeat):
            return False
        self.hints.avoid(session, lost=lost)
        return not isinstance(error, ConnectionLost) or repeat or not error.maybe_executed

    async def run(
        self,
        role: Role,
        commands: Sequence[Sequence[Argument]],
        *,
        repeat: bool,
        pinned: Session | None = None,
        queues: Sequence[Name] = (),
    ) -> list[Reply]:
        """Run commands as one pipeline, on the current node or, while it lives, on ``pinned``.
        Those about ``queues`` go to the node that is best for these.

        Commands that certainly did not run, or were refused with -LEAVING, are sent again. Those
        that may have run are sent again only if ``repeat`` is set. In the returned list, a command
        that failed for good has its error in place of the reply.
        """
        results: list[Reply] = [None] * len(commands)
        todo = list(range(len(commands)))
        retry = self.retry()
        while todo:
            session = pinned if pinned is not None and pinned.alive else None
            try:
                if session is None:
                    session = await self.session_for(queues, retry, adds=role == "adds")
                connection = await session.connection(role)
            except (ConnectionLost, *REFUSED) as error:
                if session is not None and self.guest_failed(session, error, repeat=True):
                    continue  # nothing was sent
                # That a command may have run says more than that no node is left: keep it.
                for index in todo:
                    before = results[index]
                    if not (isinstance(before, ConnectionLost) and before.maybe_executed):
                        results[index] = error
                if isinstance(error, REFUSED) or session is None:
                    return results
                replies: list[Reply] = [results[index] for index in todo]
            else:
                replies = await connection.execute_many([commands[index] for index in todo])
            again: list[int] = []
            pause = True
            for index, reply in zip(todo, replies, strict=True):
                results[index] = reply
                if isinstance(reply, LeavingError):
                    self.leave(session)
                    again.append(index)
                elif pinned is None and self.guest_failed(session, reply, repeat=repeat):
                    pause = False
                    again.append(index)
                elif isinstance(reply, ConnectionLost) and (repeat or not reply.maybe_executed):
                    again.append(index)
            todo = again
            if todo and pause and not await retry.again():
                break
        return results

    async def run_one(
        self,
        role: Role,
        command: Sequence[Argument],
        *,
        repeat: bool,
        pinned: Session | None = None,
        queues: Sequence[Name] = (),
    ) -> Reply:
        """Run one command as ``run`` does, and return its reply.

        Raises:
            DisqueError: the command failed for good.
        """
        [reply] = await self.run(role, [command], repeat=repeat, pinned=pinned, queues=queues)
        if isinstance(reply, DisqueError):
            raise reply
        return reply

    async def run_anywhere(self, command: Sequence[Argument]) -> Reply:
        """Run a command about a job at each known node, until one has that job.

        Raises:
            NoJobError: no node has it.
            ConnectionLost: those that were reached do not have it, and there are others.
            DisqueError: the error of the one that has it.
        """
        missing = ""
        absent: NoJobError | None = None
        for address in self._directory.candidates(library().current_time(), self._prefer):
            try:
                session = await self._open(address)
                try:
                    return await (await session.connection("control")).execute(*command)
                finally:
                    session.close()
            except NoJobError as error:
                absent = error
            except (ConnectionLost, LoadingError, ProtocolError, TlsError, *REFUSED) as error:
                missing = f"{address}: {error}"
        if missing or absent is None:
            raise ConnectionLost(f"not all nodes can be asked: {missing}")
        raise absent

    async def run_at(self, address: Address, command: Sequence[Argument]) -> None:
        """Run a command at a node that was lost, if it comes back within a few seconds. Raises
        DisqueError if it refuses that."""
        retry = Retry(min(self.retry_for, RETURN))
        again = True
        while again:
            try:
                session = await self._open(address)
                try:
                    await (await session.connection("control")).execute(*command)
                finally:
                    session.close()
                return
            except (ConnectionLost, LoadingError):
                again = await retry.again()

    async def _choose(self) -> None:
        if self._closed:
            raise ConnectionLost("the client is closed")
        failures: list[str] = []
        lasting = self._session is None  # certificates may be renewed later on
        refused: AuthError | NoPermError | None = None
        for address in self._directory.candidates(library().current_time(), self._prefer):
            try:
                session = await self._open(address)
            except REFUSED as error:
                refused = error
            except DisqueError as error:
                lasting = lasting and (isinstance(error, TlsError) or _TLS_ONLY in str(error))
                failures.append(f"{address}: {error}")
            else:
                session = await self._improve(session)
                if self.hints is not None:
                    session = self.hints.move_in(session)
                self._session = session
                self._prefer = self._session.address
                self._outage.over()
                self._failure = ""
                return
        if refused is not None:
            raise refused
        self._attempts += 1
        self._failure = "no Disque node can be reached: " + "; ".join(failures)
        self._outage.failed("; ".join(failures))
        if lasting:
            raise TlsError(self._failure)

    async def _improve(self, session: Session) -> Session:
        for address in self._directory.better_than(session.node_id, library().current_time()):
            try:
                better = await self._open(address)
            except DisqueError:
                continue
            session.close()
            return better
        return session

    async def _open(self, address: Address) -> Session:
        session = await open_session(self._connector, address)
        self._directory.learn(session.hello)
        return session
