"""``disque workers``: the processes that take jobs, and the jobs that they have."""

from contextlib import suppress
from typing import Final

from disque_trio import humanize
from disque_trio.cli.subcommands.printing import Column
from disque_trio.cli.subcommands.reach import reach
from disque_trio.cli.subcommands.scanning import shown_jobs
from disque_trio.cli.subcommands.subcommand import Call, Subcommand
from disque_trio.client.shown import ShownJob
from disque_trio.overview.clients import Client, read_clients
from disque_trio.overview.workers import (
    ProcessReport,
    WorkerRow,
    read_reports,
    worker_fields,
    workers,
)
from disque_trio.process.options import Parser
from disque_trio.respclient.errors import DisqueError, ReplyError
from disque_trio.respclient.values import text

_COLUMNS: Final = (
    Column[WorkerRow]("worker", lambda row: row.name),
    Column[WorkerRow]("address", lambda row: row.clients[0].address.rpartition(":")[0]),
    Column[WorkerRow]("user", lambda row: row.clients[0].user),
    Column[WorkerRow]("nodes", lambda row: humanize.count(len(row.nodes)), True),
    Column[WorkerRow]("connections", lambda row: humanize.count(len(row.clients)), True),
    Column[WorkerRow]("waiting", lambda row: humanize.count(row.waiting), True),
    Column[WorkerRow]("jobs", lambda row: humanize.count(len(row.jobs)), True),
    Column[WorkerRow](
        "slots", lambda row: "-" if row.report is None else humanize.count(row.report.slots), True
    ),
    Column[WorkerRow](
        "memory", lambda row: "-" if row.report is None else humanize.size(row.report.memory), True
    ),
    Column[WorkerRow]("longest", lambda row: humanize.duration(row.longest), True),
    Column[WorkerRow]("connected", lambda row: humanize.duration(row.age), True),
    Column[WorkerRow]("idle", lambda row: humanize.duration(row.idle), True),
    Column[WorkerRow]("queues", lambda row: " ".join(row.queues)),
)


def _describe(parser: Parser) -> None:
    parser.add_argument(
        "--no-jobs",
        action="store_true",
        help="do not look for their jobs, for which the nodes visit all jobs",
    )


async def _run(call: Call) -> int:
    clients: list[Client] = []
    running: list[tuple[str, ShownJob]] = []
    reports: list[ProcessReport] = []
    async with reach(call) as reached:
        status = reached.complain(call)
        for member in reached.members:
            try:
                clients += read_clients(member.address, text(await member.ask("CLIENT", "LIST")))
                with suppress(ReplyError):  # of an older release, or this user may not ask
                    reports += read_reports(member.address, await member.ask("WORKER", "LIST"))
                if call.arguments.no_jobs:
                    continue
                async for page in shown_jobs(member, ("STATE", "running"), 0):
                    running += [(member.address, job) for job in page]
            except DisqueError as error:
                call.printer.complain(f"{member.address}: {error}")
                status = 1
    call.printer.rows(_COLUMNS, workers(clients, running, reports), worker_fields, "No worker.")
    return status


SUBCOMMAND: Final = Subcommand(_describe, _run)
