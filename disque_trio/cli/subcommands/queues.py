"""``disque queues``: the queues of the cluster, with lengths and rates."""

import time
from typing import Final

import trio

from disque_trio import humanize
from disque_trio.cli.subcommands.printing import RED, YELLOW, Column
from disque_trio.cli.subcommands.subcommand import Call, Subcommand
from disque_trio.cli.subcommands.watching import complain, watched
from disque_trio.overview.cluster import Cluster
from disque_trio.overview.looks import Looks
from disque_trio.overview.poller import Poller
from disque_trio.overview.queues import KEYS, QueueRow
from disque_trio.overview.records import queue_fields
from disque_trio.process.options import Parser, count, period

COUNTED_IN: Final = 60.0  # s to wait for the counts of all jobs, by default

_BASE: Final = (
    Column[QueueRow]("queue", lambda row: row.name),
    Column[QueueRow]("queued", lambda row: humanize.count(row.length), True),
    Column[QueueRow]("added/s", lambda row: humanize.rate(row.added), True),
    Column[QueueRow]("deliv/s", lambda row: humanize.rate(row.delivered), True),
    Column[QueueRow]("acked/s", lambda row: humanize.rate(row.acked), True),
    Column[QueueRow]("oldest", lambda row: humanize.duration(row.oldest or None), True),
    Column[QueueRow](
        "waiting",
        lambda row: "never" if row.unasked else humanize.count(row.blocked),
        True,
        lambda row: RED if row.unasked else "",
    ),
)
_COUNTS: Final = (
    Column[QueueRow]("in hand", lambda row: humanize.count(row.in_hand), True),
    Column[QueueRow]("delayed", lambda row: humanize.count(row.delayed), True),
    Column[QueueRow]("dead", lambda row: humanize.count(row.dead), True),
)
_PAUSED: Final = Column[QueueRow](
    "paused", lambda row: row.paused or humanize.NONE, False, lambda row: YELLOW
)


def _describe(parser: Parser) -> None:
    add = parser.add_argument
    add("name", nargs="?", default="", help="part of the names, or a pattern: mail.*")
    add(
        "--sort",
        choices=list(KEYS),
        default="name",
        help="order; names begin with a, figures with the highest (default: name)",
    )
    add("--limit", type=count, metavar="N", help="list at most this many")
    add(
        "--counts",
        action="store_true",
        help="also count jobs in hand, delayed and dead; for that, the nodes visit all their jobs",
    )
    add(
        "--wait",
        type=period(0.1),
        default=COUNTED_IN,
        metavar="TIME",
        help=f"how long to wait for these counts (default: {COUNTED_IN:g}s)",
    )


async def _run(call: Call) -> int:
    wanted = call.arguments
    async with watched(call) as (cluster, looks, poller):
        status = 0
        if wanted.counts and not await _counted(cluster, looks, poller, wanted.wait):
            call.printer.complain(f"not all jobs were counted in {wanted.wait:g} s")
            status = 1
        rows = cluster.queues.find(wanted.name, wanted.sort, wanted.sort != "name")
        columns = (*_BASE, *(_COUNTS if wanted.counts else ()), _PAUSED)
        call.printer.rows(columns, rows[: wanted.limit], queue_fields, "No queue.")
        return complain(call, cluster) or status


async def _counted(cluster: Cluster, looks: Looks, poller: Poller, seconds: float) -> bool:
    """Have all nodes count all their jobs. Returns whether they did in time."""
    with trio.move_on_after(seconds):
        while cluster.queues.counted_since(state.address for state in cluster.nodes.here()) is None:
            looks.counts.at(time.time())
            await poller.news.wait()
        return True
    return False


SUBCOMMAND: Final = Subcommand(_describe, _run)
