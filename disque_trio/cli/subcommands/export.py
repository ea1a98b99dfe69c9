"""``disque export``: writes jobs as lines of JSON, which ``disque import`` reads."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from disque_trio.cli.subcommands import jobs
from disque_trio.cli.subcommands.printing import as_json
from disque_trio.cli.subcommands.reach import reach
from disque_trio.cli.subcommands.scanning import shown_jobs
from disque_trio.cli.subcommands.subcommand import Call, Failure, Subcommand
from disque_trio.humanize import jobs as of_jobs
from disque_trio.overview.records import due_in
from disque_trio.process.options import Parser
from disque_trio.respclient.errors import DisqueError

STATES: Final = ("wait-repl", "queued", "active")
"""All jobs that have not ended, copies included: their node may be lost."""
STEP: Final = 100  # jobs for one reply: they come with their bodies


def line_of(row: jobs.JobRow) -> str:
    """A job as ``disque jobs --json`` shows it, with when it is due (``at``, s since the epoch)."""
    due = due_in(row.job, row.now) if row.stage in ("delayed", "retrying") else None
    waits = row.job.state == "active" and due is not None
    at = {"at": round(row.now + due, 3)} if waits and due is not None else {}
    return as_json(jobs.fields_of(row) | at)


def written_ids(path: Path) -> set[str]:
    """The ids of the jobs in a file, without a last line that is cut off, which is removed. Raises
    ``Failure``."""
    found: set[str] = set()
    end = 0
    with path.open("r+b") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                file.truncate(end)
                break
            end += len(line)
            try:
                found.add(json.loads(line)["id"])
            except (ValueError, TypeError, KeyError):
                raise Failure(f"{path}, line {number}: not a job") from None
    return found


@contextmanager
def _output(path: Path | None, resume: bool) -> Iterator[tuple[BinaryIO, set[str]]]:
    """Where to write, and the ids that are there already."""
    if path is None:
        yield sys.stdout.buffer, set()
        return
    known = written_ids(path) if resume and path.exists() else set()
    try:
        file = path.open("ab" if resume else "xb")
    except FileExistsError:
        raise Failure(f"{path} exists; --resume adds the jobs that it lacks") from None
    with file:
        yield file, known


def _describe(parser: Parser) -> None:
    add = parser.add_argument
    add("queue", nargs="*", help="only jobs of these queues")
    add("--output", type=Path, metavar="FILE", help="a new file (default: standard output)")
    add("--resume", action="store_true", help="the file may be there: add the jobs that it lacks")
    jobs.add_filters(parser)


async def _run(call: Call) -> int:
    wanted: Any = call.arguments
    if wanted.resume and wanted.output is None:
        raise Failure("--resume needs --output")
    chosen = jobs.conditions(call, wanted.queue, list(STATES))
    with _output(wanted.output, wanted.resume) as (file, seen):
        before = len(seen)
        progress = call.printer.progress("exported", None)
        async with reach(call) as reached:
            status = 0
            for member in reached.members:
                try:
                    async for page in shown_jobs(member, chosen, None, STEP):
                        now = time.time()
                        new = [job for job in page if job.id not in seen]
                        seen.update(job.id for job in new)
                        for job in new:
                            row = jobs.JobRow(job, member.address, now)
                            file.write(line_of(row).encode() + b"\n")
                        progress.add(len(new))
                except DisqueError as error:
                    call.printer.complain(f"{member.address}: {error}")
                    status = 1
            status = reached.complain(call) or status
        file.flush()
    call.printer.tell(f"exported {of_jobs(len(seen) - before)}")
    return status


SUBCOMMAND: Final = Subcommand(_describe, _run)
