"""``disque jobs``: jobs of all nodes, by queue and state."""

import time
from dataclasses import dataclass
from typing import Any, Final

from disque_trio import humanize
from disque_trio.cli.subcommands.printing import RED, YELLOW, Column
from disque_trio.cli.subcommands.reach import reach
from disque_trio.cli.subcommands.scanning import STEP, shown_jobs
from disque_trio.cli.subcommands.subcommand import Call, Failure, Subcommand
from disque_trio.client.shown import ShownJob
from disque_trio.overview.names import to_bytes
from disque_trio.overview.records import (
    STAGES,
    STATES,
    due_in,
    job_fields,
    last_error_of,
    stage_of,
    tries_of,
)
from disque_trio.process.options import Parser, count, whole, whole_period
from disque_trio.resp.command import Argument
from disque_trio.respclient.errors import DisqueError

LIMIT: Final = 50  # jobs, by default
WORDS: Final = 60  # characters of a body in a table
BODY: Final = 1_024  # bytes of a body, by default
TASK: Final = "task"
"""The header that names the function that a job calls."""
_COLOURS: Final = {"dead": RED, "retrying": YELLOW}


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job, as ``node`` tells of it at ``now`` (s since the epoch)."""

    job: ShownJob
    node: str
    now: float

    @property
    def stage(self) -> str:
        """Its state, as in ``--state``."""
        return stage_of(self.job, self.now)

    @property
    def age(self) -> float:
        """In seconds."""
        return max(0.0, self.now - self.job.created)

    @property
    def when(self) -> str:
        """What matters of its times: since when it runs, when it is due, how old it is."""
        job = self.job
        if job.client_since is not None:
            return f"for {humanize.duration(job.client_since / 1000)}"
        if job.state == "active" and (due := due_in(job, self.now)) is not None:
            return f"in {humanize.duration(due)}"
        return humanize.duration(self.age)

    @property
    def what(self) -> str:
        """The task, and the first words of the body."""
        body = self.job.body[: 4 * WORDS].decode("utf-8", "replace")
        words = " ".join(body.split())
        task = dict(self.job.header_pairs).get(TASK)
        return humanize.shortened(f"{task} {words}" if task else words, WORDS)


_COLUMNS: Final = (
    Column[JobRow]("id", lambda row: row.job.id, shrinks=False),
    Column[JobRow]("queue", lambda row: row.job.queue),
    Column[JobRow]("state", lambda row: row.stage, False, lambda row: _COLOURS.get(row.stage, "")),
    Column[JobRow]("tries", lambda row: humanize.count(tries_of(row.job)), True),
    Column[JobRow]("when", lambda row: row.when, True),
    Column[JobRow]("node", lambda row: row.node, shrinks=False),
    Column[JobRow]("what", lambda row: row.what),
    Column[JobRow]("last error", lambda row: last_error_of(row.job)),
)


def fields_of(row: JobRow) -> dict[str, Any]:
    """A job for programs."""
    return job_fields(row.job, row.node, row.now)


def _describe(parser: Parser) -> None:
    add = parser.add_argument
    add("queue", nargs="*", help="only jobs of these queues")
    add(
        "--state",
        action="append",
        choices=STATES,
        help="only jobs in this state; may be repeated (default: all but copies, that is"
        f" {', '.join(STAGES)})",
    )
    add("--limit", type=count, default=LIMIT, metavar="N", help=f"at most (default: {LIMIT})")
    add_filters(parser)
    add(
        "--body",
        type=whole(),
        default=BODY,
        metavar="BYTES",
        help=f"how much of each body --json shows (default: {BODY})",
    )
    parser.epilog = "Jobs are listed as the nodes find them, in no particular order."


def add_filters(parser: Parser) -> None:
    """Add the options that choose jobs, for ``conditions``."""
    add = parser.add_argument
    add("--min-age", type=whole_period(), metavar="TIME", help="added at least so long ago")
    add("--max-age", type=whole_period(), metavar="TIME", help="added at most so long ago")
    add("--min-returns", type=count, metavar="N", help="came back at least so often")
    add("--group", metavar="NAME", help="of this group")
    add(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="with this header; may be repeated",
    )


def conditions(call: Call, queues: list[str], states: list[str]) -> list[Argument]:
    """The conditions of JSCAN for the filters of a call. Raises ``Failure``."""
    wanted = call.arguments
    found: list[Argument] = []
    for queue in queues:
        found += ["QUEUE", to_bytes(queue)]
    for state in states:
        found += ["STATE", state]
    for word, value in (
        ("MINAGE", wanted.min_age),
        ("MAXAGE", wanted.max_age),
        ("MINRETURNS", wanted.min_returns),
    ):
        found += [word, value] if value is not None else []
    if wanted.group is not None:
        found += ["GROUP", to_bytes(wanted.group)]
    for header in wanted.header:
        name, equals, value = header.partition("=")
        if not equals:
            raise Failure(f"a header is written NAME=VALUE, not {header!r}")
        found += ["HEADER", to_bytes(name), to_bytes(value)]
    return found


async def _run(call: Call) -> int:
    wanted = call.arguments
    chosen = conditions(call, wanted.queue, wanted.state or list(STAGES))
    rows: list[JobRow] = []
    seen: set[str] = set()
    more = False
    async with reach(call) as reached:
        status = reached.complain(call)
        for member in reached.members:
            try:
                async for page in shown_jobs(
                    member,
                    chosen,
                    wanted.body if call.printer.json else 4 * WORDS,
                    min(STEP, max(100, wanted.limit)),
                ):
                    now = time.time()
                    new = [job for job in page if job.id not in seen]
                    seen.update(job.id for job in new)
                    rows += [JobRow(job, member.address, now) for job in new]
                    if more := len(rows) > wanted.limit:
                        break
            except DisqueError as error:
                call.printer.complain(f"{member.address}: {error}")
                status = 1
            if more:
                break
    call.printer.rows(_COLUMNS, rows[: wanted.limit], fields_of, "No job.")
    if more and not call.printer.json:
        call.printer.line(f"(there are more: --limit {wanted.limit} was reached)")
    return status


SUBCOMMAND: Final = Subcommand(_describe, _run)
