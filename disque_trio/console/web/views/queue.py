"""One queue."""

from typing import Final

from disque_trio.console.model.policy_actions import NUMBERS, escape_pattern, fields_of
from disque_trio.console.web.charts import Line, chart
from disque_trio.console.web.visit import Missing, Shown, Visit
from disque_trio.overview import figures

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
            "shares": sorted(table.shares(name).items()),
            "policy": policy,
            "own": own,
            "is_own": policy is not None and policy.name == own,
            "options": fields_of(policy),
            "numbers": NUMBERS,
            "lines": RATES,
            "throughput": chart(
                history, RATES, visit.now, "Jobs of the queue per second in the last hour"
            ),
            "depth": chart(
                history,
                [Line("queued", "length")],
                visit.now,
                "Queued jobs in the last hour",
                figures.short,
            ),
        }
    )
