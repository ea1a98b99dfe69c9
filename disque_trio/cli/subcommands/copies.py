"""``disque copies``: jobs that have fewer copies than they should, and makes these."""

from typing import Final

from disque_trio import humanize
from disque_trio.cli.subcommands.printing import Column
from disque_trio.cli.subcommands.reach import Reached, reach
from disque_trio.cli.subcommands.scanning import shown_jobs
from disque_trio.cli.subcommands.short_of_copies import conditions, counts, make
from disque_trio.cli.subcommands.subcommand import Call, Failure, Subcommand
from disque_trio.client.shown import ShownJob
from disque_trio.process.options import Parser, count, period
from disque_trio.respclient.errors import DisqueError, first_of

WAIT: Final = 10.0  # s for the copies of one request, by default
LIMIT: Final = 50  # jobs to list, by default

_QUEUES: Final = (
    Column[tuple[str, int]]("queue", lambda row: row[0]),
    Column[tuple[str, int]]("jobs", lambda row: humanize.count(row[1]), True),
)
_JOBS: Final = (
    Column[tuple[ShownJob, str]]("id", lambda row: row[0].id, shrinks=False),
    Column[tuple[ShownJob, str]]("queue", lambda row: row[0].queue),
    Column[tuple[ShownJob, str]]("state", lambda row: row[0].state),
    Column[tuple[ShownJob, str]]("wanted", lambda row: humanize.count(row[0].repl), True),
    Column[tuple[ShownJob, str]]("node", lambda row: row[1], shrinks=False),
)


def _describe(parser: Parser) -> None:
    add = parser.add_argument
    add("queue", nargs="*", help="only jobs of these queues")
    add("--make", action="store_true", help="make the copies")
    add("--list", action="store_true", help="list the jobs, not their queues")
    add("--limit", type=count, default=LIMIT, metavar="N", help=f"list so many (default: {LIMIT})")
    add(
        "--wait",
        type=period(0.1),
        default=WAIT,
        metavar="TIME",
        help=f"how long to wait until the copies of one request are confirmed (default: {WAIT:g}s)",
    )
    parser.epilog = (
        "Copies count unless their node has left the cluster (CLUSTER FORGET) or is leaving it."
        " The exit status is 1 if jobs have too few copies."
    )


async def _run(call: Call) -> int:
    queues = call.arguments.queue
    async with reach(call) as reached:
        status = reached.complain(call)
        found = await counts(reached.members, queues)
        if call.arguments.make:
            await _make(call, reached, sum(found.values()))
            found = await counts(reached.members, queues)
        if call.arguments.list:
            await _list(call, reached)
        else:
            call.printer.rows(
                _QUEUES,
                found.most_common(),
                lambda row: {"queue": row[0], "jobs": row[1]},
                "All jobs have their copies.",
            )
        if found and call.arguments.make:
            number = humanize.jobs(sum(found.values()))
            call.printer.complain(f"{number} still have too few copies: {_why(reached)}")
        return 1 if found else status


async def _make(call: Call, reached: Reached, total: int) -> None:
    """Make the copies of ``total`` jobs. Raises Failure."""
    progress = call.printer.progress("copied", total)
    problem: BaseException | None = None
    try:
        await make(reached.members, call.arguments.queue, call.arguments.wait, progress)
    except* DisqueError as group:
        problem = first_of(group)
    call.printer.end()
    if problem is not None:
        raise Failure(
            f"{problem} (copied: {progress.done:,} of {total:,}; the same command goes on with the"
            " rest)"
        )


def _why(reached: Reached) -> str:
    number = len(reached.members)
    nodes = f"{number} node{'' if number == 1 else 's'} can be reached"
    return f"{nodes}, and some may take no copies now (disque nodes)"


async def _list(call: Call, reached: Reached) -> None:
    """List the jobs."""
    wanted = conditions(call.arguments.queue)
    rows: list[tuple[ShownJob, str]] = []
    for member in reached.members:
        async for page in shown_jobs(member, wanted, 0):
            rows += [(job, member.address) for job in page]
            if len(rows) > call.arguments.limit:
                break
    more = len(rows) > call.arguments.limit
    call.printer.rows(
        _JOBS,
        rows[: call.arguments.limit],
        lambda row: {
            "id": row[0].id,
            "queue": row[0].queue,
            "state": row[0].state,
            "wanted": row[0].repl,
            "node": row[1],
        },
        "All jobs have their copies.",
    )
    if more and not call.printer.json:
        call.printer.line(f"(there are more: --limit {call.arguments.limit} was reached)")


SUBCOMMAND: Final = Subcommand(_describe, _run)
