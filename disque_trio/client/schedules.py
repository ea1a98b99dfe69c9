"""Jobs that the cluster adds by itself, again and again."""

from disque_trio.client import replies, requests
from disque_trio.client.requests import Headers
from disque_trio.client.router import Router
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.values import Name, elements, integer, text


class Schedules:
    """The schedules of a cluster (CRON)."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def set(
        self,
        name: Name,
        times: str,
        queue: Name,
        body: Name,
        *,
        tz: str | None = None,
        catchup: bool = False,
        replicate: int | None = None,
        delay: float | None = None,
        retry: int | None = None,
        ttl: int | None = None,
        maxlen: int | None = None,
        priority: int | None = None,
        group: Name | None = None,
        headers: Headers | None = None,
        async_: bool = False,
    ) -> None:
        """Let the cluster add a job at certain times, again and again (CRON SET).

        Args:
            name: of the schedule; one with this name is replaced.
            times: five fields as in cron, ``@daily`` and its like, or ``@every 10s``.
            queue, body: of each job.
            tz: the fields are of this time zone (``Europe/Berlin``); None: UTC.
            catchup: make up the last job that was missed while no node was there.
            replicate, delay, retry, ttl, maxlen, priority, group, headers, async_: of each job, as
                for ``Client.add``.

        Raises:
            NoExtError: a node of the cluster does not know this.
            ReplyError: times or zone make no sense, or the node has no cronsim.
        """
        options = (replicate, delay, retry, ttl, maxlen, async_)
        more = requests.addjob(
            *(queue, body, None, *options), priority=priority, group=group, headers=headers
        )[4:]
        await self._cron(*requests.cron(name, times, tz, catchup), queue, body, *more)

    async def get(self, name: Name) -> replies.Schedule | None:
        """The schedule with this name (CRON GET); None: there is none."""
        return replies.schedule(await self._cron("GET", name))

    async def all(self) -> list[replies.Schedule]:
        """All schedules by name, without the bodies of their jobs (CRON LIST)."""
        found = map(replies.schedule, elements(await self._cron("LIST")))
        return [schedule for schedule in found if schedule is not None]

    async def delete(self, name: Name) -> bool:
        """Delete a schedule (CRON DEL); returns whether there was one."""
        return integer(await self._cron("DEL", name)) > 0

    async def pause(self, name: Name) -> None:
        """Let no jobs of a schedule be added until ``resume``. Raises ReplyError: there is
        none with this name."""
        await self._cron("PAUSE", name)

    async def resume(self, name: Name) -> None:
        """Let jobs be added again, and none for the time that it was paused. Raises ReplyError."""
        await self._cron("RESUME", name)

    async def run(self, name: Name) -> str | list[str]:
        """Add a job of a schedule now, whatever its times say; returns its id, or, where the queue
        is a topic, those of all its jobs. Raises ReplyError, and AddManyError as ``publish``."""
        reply = await self._router.run_one("adds", ["CRON", "RUN", name], repeat=False)
        return replies.ids(reply) if isinstance(reply, list) else text(reply)

    async def _cron(self, *words: Argument) -> Reply:
        return await self._router.run_one("control", ["CRON", *words], repeat=True)
