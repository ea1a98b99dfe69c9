"""One queue."""

from collections.abc import Sequence
from typing import Final

from disque_console.model.actions import JOB_OPTIONS
from disque_console.model.bindings import Row, merged
from disque_console.model.policy_actions import FIELDS, escape_pattern, fields_of
from disque_console.model.policy_sentence import sentences
from disque_console.web.answers import parted
from disque_console.web.charts import Line, chart
from disque_console.web.visit import Missing, Shown, Visit
from disque_trio import humanize
from disque_trio.job_options import Seconds, Whole
from disque_trio.overview.names import to_bytes

MODES: Final = {Whole: "numeric", Seconds: "decimal"}
JOB_FIELDS: Final = [
    (name, MODES.get(type(option), "text"), option) for name, option in JOB_OPTIONS.items()
]
RATES: Final = tuple(Line(name, name) for name in ("added", "delivered", "acked"))


async def view(visit: Visit) -> Shown:
    """A queue: its counts, charts, policy and actions."""
    name = visit.query("name")
    if not name:
        raise Missing("The address names no queue.")
    if visit.console.looks.at([name], visit.now):
        await visit.console.looks.wait_reported(0.15)
    table = visit.cluster.queues
    policy = visit.cluster.policies.of(name)
    history = table.history(name)
    own = escape_pattern(name)
    return Shown(
        {
            "queue": name,
            "row": table.row(name),
            "bindings": await _bindings(visit, name),
            "shares": sorted(table.shares(name).items()),
            "policy": policy,
            "sentences": sentences(policy) if policy is not None else [],
            "own": own,
            "is_own": policy is not None and policy.name == own,
            "options": fields_of(policy),
            "job_options": JOB_FIELDS,
            "policy_fields": FIELDS,
            "lines": RATES,
            "throughput": chart(
                history, RATES, visit.now, "Jobs of the queue per second in the last hour"
            ),
            "depth": chart(
                history,
                [Line("queued", "length")],
                visit.now,
                "Queued jobs in the last hour",
                humanize.short,
            ),
        }
    )


async def _bindings(visit: Visit, name: str) -> Sequence[Row]:
    """The topics whose jobs the queue gets; none from nodes that cannot say, or may not say."""
    if not any(state.number("bindings") for state in visit.cluster.nodes.here()):
        return []
    good, _ = parted(await visit.every("BINDINGS", "QUEUE", to_bytes(name), "FULL"))
    return merged(good)
