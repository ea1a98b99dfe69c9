"""``disque nodes``: the nodes of the cluster, and what is wrong with them."""

import time
from dataclasses import dataclass
from typing import Final

from disque_trio import humanize
from disque_trio.cli.subcommands.printing import DIM, RED, YELLOW, Column
from disque_trio.cli.subcommands.subcommand import Call, Subcommand
from disque_trio.cli.subcommands.watching import watched
from disque_trio.health.table import CRITICAL
from disque_trio.overview.nodes import NodeState
from disque_trio.overview.records import node_fields, status_of
from disque_trio.process.options import Parser


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node. now: s since the epoch."""

    state: NodeState
    now: float

    @property
    def status(self) -> str:
        """``up``, ``leaving``, ``unreachable`` or ``connecting``."""
        return status_of(self.state)

    @property
    def trouble(self) -> str:
        """Why it cannot be reached, or the worst of its alarms, and how many there are besides."""
        if not self.state.here:
            return self.state.problem
        if self.state.refused:
            return self.state.refused
        alarms = self.state.alarms
        more = f" (and {len(alarms) - 1} more)" if len(alarms) > 1 else ""
        return alarms[0].cause + more if alarms else ""

    @property
    def memory(self) -> str:
        """What it uses, and of how much."""
        used, most = self.state.number("used_memory"), self.state.number("maxmemory")
        return humanize.size(used) + (f" of {humanize.size(most)}" if most else "")


def _colour(row: NodeRow) -> str:
    if not row.state.here or any(line.severity == CRITICAL for line in row.state.alarms):
        return RED
    return YELLOW if row.state.alarms or row.state.leaving else ""


def _rate(name: str) -> Column[NodeRow]:
    return Column(f"{name}/s", lambda row: humanize.rate(row.state.rate(name)), True)


def _number(title: str, field: str) -> Column[NodeRow]:
    return Column(
        title, lambda row: humanize.count(row.state.number(field) if row.state.here else None), True
    )


_COLUMNS: Final = (
    Column[NodeRow]("node", lambda row: row.state.address),
    Column[NodeRow]("id", lambda row: row.state.id[:8], False, lambda row: DIM),
    Column[NodeRow]("state", lambda row: row.status, False, _colour),
    Column[NodeRow]("version", lambda row: row.state.info.get("disque_version", "")),
    Column[NodeRow](
        "uptime",
        lambda row: humanize.duration(
            row.state.number("uptime_in_seconds") if row.state.here else None
        ),
        True,
    ),
    _number("jobs", "registered_jobs"),
    _number("queues", "registered_queues"),
    _number("clients", "connected_clients"),
    Column[NodeRow]("memory", lambda row: row.memory if row.state.here else humanize.NONE, True),
    _rate("added"),
    _rate("acked"),
    Column[NodeRow]("trouble", lambda row: row.trouble, False, _colour),
)


def _describe(parser: Parser) -> None:
    parser.epilog = "The exit status is 1 if a node cannot be reached."


async def _run(call: Call) -> int:
    async with watched(call) as (cluster, _, _):
        rows = [NodeRow(state, time.time()) for state in cluster.nodes.all()]
        call.printer.rows(_COLUMNS, rows, lambda row: node_fields(row.state))
        return 0 if all(row.state.here for row in rows) else 1


SUBCOMMAND: Final = Subcommand(_describe, _run)
