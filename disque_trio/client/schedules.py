"""Schedules: jobs that the cluster adds by itself, again and again."""

from typing import Unpack

from disque_trio.client import replies, requests
from disque_trio.client.router import Router
from disque_trio.job_options import Headers, ScheduleOptions
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
        headers: Headers | None = None,
        async_: bool = False,
        **options: Unpack[ScheduleOptions],
    ) -> None:
        """Let the cluster add a job at certain times, again and again (CRON SET).

        Args:
            name: the name of the schedule; replaces any schedule of this name.
            times: five fields as in cron, ``@daily`` and the like, or ``@every 10s``.
            queue, body: the queue and the body of each job.
            tz: the time zone of ``times``, such as ``Europe/Berlin``; None: UTC.
            catchup: if jobs were missed while no node was up, add the last of them later.
            headers, async_, options: of each job, as for ``Client.add``.

        Raises:
            NoExtError: a node of the cluster does not support schedules.
            ReplyError: the times or the time zone are invalid, or the node has no cronsim.
        """
        more = requests.addjob(queue, body, headers=headers, async_=async_, **options)[4:]
        await self._cron(*requests.cron(name, times, tz, catchup), queue, body, *more)

    async def get(self, name: Name) -> replies.Schedule | None:
        """Return the schedule with this name (CRON GET); None if there is none."""
        return replies.schedule(await self._cron("GET", name))

    async def all(self) -> list[replies.Schedule]:
        """Return all schedules by name, without the bodies of their jobs (CRON LIST)."""
        found = map(replies.schedule, elements(await self._cron("LIST")))
        return [schedule for schedule in found if schedule is not None]

    async def delete(self, name: Name) -> bool:
        """Delete a schedule (CRON DEL); return whether there was one."""
        return integer(await self._cron("DEL", name)) > 0

    async def pause(self, name: Name) -> None:
        """Add no jobs of a schedule until ``resume`` (CRON PAUSE). Raises ReplyError if there is no
        schedule of this name."""
        await self._cron("PAUSE", name)

    async def resume(self, name: Name) -> None:
        """Add jobs again, but none for the pause (CRON RESUME). Raises ReplyError as ``pause``."""
        await self._cron("RESUME", name)

    async def run(self, name: Name) -> str | list[str]:
        """Add a job of a schedule now, whatever its times are (CRON RUN).

        Returns:
            The id of the job; if the queue is a topic, the ids of all its jobs.

        Raises:
            ReplyError: there is no schedule of this name, or the job was refused.
            AddManyError: as for ``Client.publish``.
        """
        reply = await self._router.run_one("adds", ["CRON", "RUN", name], repeat=False)
        return replies.ids(reply) if isinstance(reply, list) else text(reply)

    async def _cron(self, *words: Argument) -> Reply:
        return await self._router.run_one("control", ["CRON", *words], repeat=True)
