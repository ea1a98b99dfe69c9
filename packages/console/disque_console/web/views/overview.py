"""The state of the cluster: rates, depth, nodes, and the last hours."""

from functools import partial
from typing import Any, Final

from disque_console.web.charts import JOBS, Line, chart, range_named
from disque_console.web.ranges import drawn, shown_range
from disque_console.web.visit import Shown, Visit
from disque_trio.overview.attention import alarms_of, concerns
from disque_trio.overview.groups import groups
from disque_trio.overview.history import History, Range
from disque_trio.overview.nodes import COUNTED

RATES: Final = tuple(Line(name, name) for name in COUNTED)
LEVELS: Final = (Line("queued", "length"), Line("held, copies included", "jobs"))
LONGEST: Final = 8  # queues to show


async def view(visit: Visit) -> Shown:
    """The first page."""
    cluster = visit.cluster
    nodes = groups(cluster.nodes.all())
    alarms = {state.address: state.alarms for state in cluster.nodes.all()}
    longest = cluster.queues.top("length", LONGEST)
    oldest = cluster.queues.top("oldest", 1)
    history = visit.console.history.histories.cluster
    span = range_named(visit.query("range"))
    return Shown(
        {
            "rates": {name: cluster.nodes.rate(name) for name in COUNTED},
            "length": cluster.length,
            "jobs": cluster.nodes.total("registered_jobs"),
            "blocked": cluster.nodes.total("blocked_clients"),
            "clients": cluster.nodes.total("connected_clients"),
            "oldest": oldest[0] if oldest and oldest[0].oldest else None,
            "longest": [row for row in longest if row.length],
            "queue_count": len(cluster.queues),
            "nodes": nodes,
            "attention": concerns(cluster, visit.now),
            "alarms": alarms,
            "together": alarms_of(nodes),
            "lines": RATES,
            "span": shown_range(visit, history, span),
            **await drawn(visit, span, partial(_charts, history, span, visit.now)),
        }
    )


def _charts(history: History, span: Range, now: float) -> dict[str, Any]:
    throughput = f"Jobs per second in the last {span.title}"
    depth = f"Queued jobs, and all jobs with copies included, in the last {span.title}"
    return {
        "throughput": chart(history, span, RATES, now, throughput),
        "depth": chart(history, span, LEVELS, now, depth, JOBS),
    }
