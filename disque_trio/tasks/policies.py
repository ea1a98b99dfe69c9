"""What an app needs from the nodes before it works: policies of its queues, and schedules."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from disque_trio.client import Client, Policy
from disque_trio.client.requests import addjob
from disque_trio.notation.rates import format_rate, read_rate
from disque_trio.resp.command import Argument
from disque_trio.respclient.values import as_text
from disque_trio.tasks.messages import Step
from disque_trio.tasks.template import Bound


@dataclass(slots=True)
class QueuePolicy:
    """The policy that the tasks of one queue need.

    Attributes:
        rate: how many jobs are delivered in a time, such as ``50/s``; None: no limit.
        dead: the queue for dead letters; None: the one already set, or else a default.
    """

    rate: str | None = None
    dead: str | None = None

    def merge(self, queue: str, rate: str | None, dead: str | None) -> None:
        """Add the needs of one more task. Raises ValueError if they contradict another task."""
        for name, said, before in (("rate", rate, self.rate), ("dead", dead, self.dead)):
            if said is not None and before is not None and said != before:
                raise ValueError(
                    f"two tasks of the queue {queue!r} have different values of {name}, which "
                    f"belongs to the queue: {before!r} and {said!r}"
                )
        self.rate = self.rate if rate is None else rate
        self.dead = self.dead if dead is None else dead

    async def apply(self, client: Client, queue: str) -> None:
        """Set those options that differ from the wanted ones."""
        found = await client.policy(queue)
        before = found or Policy(queue)
        wanted: dict[str, Any] = {}
        dead = self.dead or before.dead or f"{queue}.dead"
        if before.dead != dead and dead != queue:
            wanted["dead"] = dead
        if self.rate is not None and before.rate != _rate(self.rate):
            wanted["rate"] = self.rate
        if wanted and before.name != queue:
            # Only one policy applies to a queue, so copy the options of the pattern's policy.
            said = {key: value for key, value in asdict(before).items() if key != "name"}
            wanted = said | wanted
        if wanted:
            await client.set_policy(queue, **wanted)


def _rate(rate: str) -> str:
    """Format a rate as QGET does. What is none is left to the node to refuse."""
    found = read_rate(rate)
    return format_rate(*found) if found else rate


@dataclass(frozen=True, slots=True)
class Timetable:
    """A job and the times at which to add it.

    Attributes:
        times, tz, catchup: as for ``Schedules.set``.
        bound: the job.
    """

    times: str
    tz: str | None
    catchup: bool
    bound: Bound[Any]

    @property
    def step(self) -> Step:
        return self.bound.step

    def words(self) -> tuple[str, ...]:
        """Return the options of ADDJOB as CRON GET formats them."""
        step = self.step
        body, headers = step.job(None)
        command: list[Argument] = addjob(
            step.queue, body, **_addjob(step.job_options()), headers=headers
        )[4:]
        return tuple(as_text(word) if isinstance(word, bytes) else str(word) for word in command)


def _addjob(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a schedule may have."""
    return {name: value for name, value in options.items() if name not in ("at", "unique_for")}


@dataclass(slots=True)
class Schedules:
    """The schedules of an app.

    Attributes:
        owner: the name of the app, with which the names of its schedules begin; empty if it has
            none.
        tables: the schedules, by their names in the cluster.
    """

    owner: str
    tables: dict[str, Timetable] = field(default_factory=dict)

    def add(self, name: str, table: Timetable) -> None:
        """Add a schedule whose ``name`` is the program's own, or that of its task. Raises
        ValueError if there already is one with this name."""
        task = table.step.task
        # Without an owner, use the task's name: it has a module, so other programs do not use it.
        owner = self.owner or (task if name != task else "")
        full = f"{owner}:{name}" if owner else name
        if full in self.tables:
            raise ValueError(f"two schedules have the name {name!r}")
        self.tables[full] = table

    async def apply(self, client: Client) -> None:
        """Set the schedules that differ from the wanted ones. If the app has a name, also delete
        schedules that begin with it and that the program no longer has."""
        if not (self.owner or self.tables):
            return
        there = {one.name: one for one in await client.schedules.all()}
        for name, table in self.tables.items():
            before = there.get(name)
            step = table.step
            body, headers = step.job(None)
            if before is not None:
                full = await client.schedules.get(before.name)
                if (
                    full is not None
                    and (full.times, full.tz or "UTC", full.catchup)
                    == (table.times, table.tz or "UTC", table.catchup)
                    and (full.queue, full.body) == (step.queue, body)
                    and full.options == table.words()
                ):
                    continue  # even if somebody paused it
            await client.schedules.set(
                name,
                table.times,
                step.queue,
                body,
                tz=table.tz,
                catchup=table.catchup,
                headers=headers,
                **_addjob(step.job_options()),
            )
        if self.owner:
            for name in there:
                if name.startswith(f"{self.owner}:") and name not in self.tables:
                    await client.schedules.delete(name)
