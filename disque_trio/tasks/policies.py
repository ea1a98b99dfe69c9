"""What an app needs from the nodes before it works: policies of its queues, and schedules."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from disque_trio.client import Client, Policy
from disque_trio.client.requests import addjob
from disque_trio.glob import is_glob
from disque_trio.notation.rates import format_rate, read_rate
from disque_trio.policy_options import OPTIONS
from disque_trio.resp.command import Argument
from disque_trio.respclient.log import library_log
from disque_trio.respclient.values import as_text
from disque_trio.tasks.messages import Step
from disque_trio.tasks.template import Bound

_log = library_log("disque.tasks")
_OPTIONS: Final = {option.name: option for option in OPTIONS}


@dataclass(slots=True)
class QueuePolicy:
    """The policy that the tasks of one queue need.

    Attributes:
        options: what the program says; see ``QueueOptions``.
        grouped: some of the jobs have groups.
    """

    options: dict[str, Any] = field(default_factory=dict)
    grouped: bool = False

    def merge(self, queue: str, options: Mapping[str, Any], *, grouped: bool = False) -> None:
        """Add the needs of one more task. Raises ValueError if they contradict another task, or no
        node takes them."""
        said = {name: value for name, value in options.items() if value is not None}
        for name, value in said.items():
            _OPTIONS[name].check(value)
            before = self.options.get(name, value)
            if value != before:
                raise ValueError(
                    f"the queue {queue!r} has different values of {name} in this program, for all "
                    f"its tasks: {before!r} and {value!r}"
                )
        self.options |= said
        self.grouped = self.grouped or grouped

    def wanted(self) -> dict[str, Any]:
        """The options of the policy, except for a default of ``dead``."""
        grouped = self.grouped or self.options.keys() & {"group_active", "group_rate"}
        return {"groups": "fair", **self.options} if grouped else dict(self.options)

    async def apply(self, client: Client, queue: str) -> None:
        """Set those options that differ from the wanted ones, and say so."""
        found = await client.policy(queue)
        before = found or Policy(queue)
        wanted = self.wanted()
        if "groups" not in self.options and before.groups:
            wanted.pop("groups", None)  # what was set by hand, or by a pattern, will do
        if "dead" not in wanted and not before.dead and not is_glob(queue.encode()):
            wanted["dead"] = f"{queue}.dead"
        changed = {
            name: value
            for name, value in wanted.items()
            if _as_told(name, value) != getattr(before, name)
            and not (name == "dead" and value == queue)
        }
        if not changed:
            return
        said = changed
        if before.name != queue:
            # Only one policy applies to a queue, so copy the options of the pattern's policy.
            said = {key: value for key, value in asdict(before).items() if key != "name"} | changed
        await client.set_policy(queue, **said)
        _log.info("the policy of a queue was set", queue=queue, **changed)


def _as_told(name: str, value: Any) -> Any:
    """Return ``value`` as QGET tells it."""
    return _rate(value) if name in ("rate", "group_rate") else value or None


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
            step.queue, body, **_addjob(step.keyless()), headers=headers
        )[4:]
        return tuple(as_text(word) if isinstance(word, bytes) else str(word) for word in command)


def _addjob(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a schedule may have."""
    return {name: value for name, value in options.items() if name != "at"}


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
                    and full.queue == step.queue
                    and (full.body == body or table.bound.same_arguments(full.body))
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
                **_addjob(step.keyless()),
            )
        if self.owner:
            for name in there:
                if name.startswith(f"{self.owner}:") and name not in self.tables:
                    await client.schedules.delete(name)
