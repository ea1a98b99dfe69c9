"""The jobs of a worker: pushed by the best node for its queues, or fetched if that cannot push."""

from functools import partial

from disque_trio.client.feed import Feed
from disque_trio.client.fetch import take
from disque_trio.client.jobs import HeldJob
from disque_trio.client.pushes import open_pushes
from disque_trio.client.requests import Pattern
from disque_trio.client.router import Router
from disque_trio.client.session import Session
from disque_trio.respclient.concurrency import library
from disque_trio.respclient.delivery import InFlight
from disque_trio.respclient.values import Name


class Supply:
    """The jobs of some queues, for any number of tasks.

    Opens a connection only when a task first takes a job.

    Args:
        router: chooses the node.
        in_flight: the jobs that are not settled.
        queues: the names of the queues, preferred ones first.
        withheaders: whether to get jobs with their headers.
        pattern: whether the names are patterns. Older nodes do not push by pattern, so jobs are
            fetched there, and queues of dead letters do match.
        calm: see ``Client.loops``.

    Raises:
        ValueError: there are no queues.
    """

    def __init__(
        self,
        router: Router,
        in_flight: InFlight,
        queues: tuple[Name, ...],
        withheaders: bool,
        pattern: Pattern,
        calm: bool = False,
    ) -> None:
        if not queues:
            raise ValueError("at least one queue is needed")
        self._router = router
        self._in_flight = in_flight
        self._queues = queues
        self._withheaders = withheaders
        self._pattern = pattern
        self._calm = calm
        self._feed: Feed | None = None
        self._opening = library().Lock()

    async def take(self) -> HeldJob:
        """Wait for a job and keep hold of it. Raises what ``Client.get`` raises.

        There is no checkpoint between its arrival and the return.
        """
        # A released job uses up credit of the feed, so fetch jobs once any was released.
        while self._feed is None or not self._feed.let_go:
            job = await self._router.wait_at(self._pushed, () if self._pattern else self._queues)
            if job is not None:
                return job
            if self._feed is None or not self._feed.moved:
                break
        return await take(
            self._router, self._in_flight, self._queues, self._withheaders, bool(self._pattern)
        )

    def pause(self) -> None:
        """Take no jobs until a task asks for one; those in hand can be settled."""
        if self._feed is not None:
            self._feed.retire()

    async def on_its_way(self) -> None:
        """Wait until no job is on its way, after ``pause``."""
        if self._feed is not None:
            await self._feed.stopped.wait()

    async def _pushed(self, session: Session) -> HeldJob | None:
        """Return the next job that this node pushes; None if it cannot push."""
        feed = self._feed
        if feed is None or feed.over or feed.session is not session:
            feed = await self._open(session)
        return None if feed is None else await feed.take()

    async def _open(self, session: Session) -> Feed | None:
        """Return a feed at this node; None if it cannot push."""
        async with self._opening:
            feed = self._feed
            if feed is not None:
                if feed.session is session and not feed.over:
                    return feed
                feed.move()
                if feed.let_go:
                    return None
            if not (session.pushes_by_pattern if self._pattern else session.pushes):
                return None
            make = partial(
                Feed,
                names=self._queues,
                withheaders=self._withheaders,
                pattern=self._pattern,
                calm=self._calm,
            )
            feed = await open_pushes(self._router, session, self._in_flight, make)
            if feed is not None:
                self._feed = feed
                if self._router.hints is not None:
                    self._router.hints.follow(feed)
            return feed
