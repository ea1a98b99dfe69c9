"""``disque import``: adds the jobs that ``disque export`` has written."""

import base64
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from disque_trio.cli.subcommands.reach import Member, Reached, reach
from disque_trio.cli.subcommands.subcommand import Call, Failure, Subcommand
from disque_trio.client import requests
from disque_trio.humanize import jobs as of_jobs
from disque_trio.overview.names import to_bytes
from disque_trio.process.options import Parser, count, period, whole_period
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import ConnectionLost, DisqueError

BATCH: Final = 200  # jobs in a pipeline
BYTES: Final = 4 << 20  # and about how large it may be
DAY: Final = 86_400
TIMEOUT: Final = 10.0  # s to wait for the copies of a job
KEY: Final = "import:"
"""Before the old id, the key of a job without one."""


def command_of(line: bytes, nodes: int, remember: int, timeout: float) -> list[Argument]:
    """The ADDJOB for a line of a file. ``nodes``: the most copies. ``remember``: seconds to keep
    the key by which it is not added twice. ``timeout``: s. Raises ValueError."""
    try:
        job: dict[str, Any] = json.loads(line)
        if "body_base64" in job:
            body = base64.b64decode(job["body_base64"], validate=True)
        else:
            body = to_bytes(job["body"])
        if job.get("body_size", len(body)) != len(body):
            raise ValueError("only a part of its body is here")
        command = requests.addjob(
            to_bytes(job.get("queue", "")),
            body,
            timeout,
            headers=[(to_bytes(name), to_bytes(value)) for name, value in job.get("headers", [])],
            key=to_bytes(job.get("unique") or KEY + job["id"]),
            kept=remember,
            **_options(job, nodes),
        )
        command += _letter(job)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a job: {error}") from error
    return command


def _options(job: dict[str, Any], nodes: int) -> Any:
    """The options of ADDJOB, without those that have the default."""
    found: dict[str, Any] = {
        "replicate": min(int(job.get("copies") or 1), nodes),
        "retry": job.get("retry"),
        "ttl": max(1, job["ttl"]) if "ttl" in job else None,
        "priority": job.get("priority") or None,
        "group": to_bytes(job.get("group") or "") or None,
        "note": to_bytes(job.get("note") or "") or None,
        "at": job.get("at"),
    }
    if found["retry"] == 0:
        found["replicate"] = 1
    return {name: value for name, value in found.items() if value is not None}


def _letter(job: dict[str, Any]) -> list[Argument]:
    """What makes a job the dead letter that it was; empty: it was none."""
    if not job.get("dead_from"):
        return []
    why = job.get("last_error") or ""
    return [
        "LETTER",
        to_bytes(job["dead_from"]),
        job["dead_why"],
        int(job.get("tries") or 0),
        job["first_id"],
        to_bytes("" if why == job["dead_why"] else why),
    ]


def batches(lines: Iterator[bytes]) -> Iterator[list[tuple[int, bytes]]]:
    """Lines with their numbers, as many together as one pipeline may have; blank ones are left
    out."""
    batch: list[tuple[int, bytes]] = []
    size = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        batch.append((number, line))
        size += len(line)
        if len(batch) == BATCH or size >= BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _lines(file: BinaryIO) -> int | None:
    """How many lines a file has; None for a pipe."""
    if not file.seekable():
        return None
    number = sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b""))
    file.seek(0)
    return number


def _describe(parser: Parser) -> None:
    add = parser.add_argument
    add("file", nargs="?", default="-", help="the lines; - is standard input (the default)")
    add("--queue", metavar="NAME", help="add all jobs to this queue, not to their own")
    add(
        "--replicate",
        type=count,
        metavar="N",
        help="copies (default: as before, if there are as many nodes)",
    )
    add(
        "--remember",
        type=whole_period(1),
        default=DAY,
        metavar="TIME",
        help="how long another import of the same jobs adds nothing (default: a day)",
    )
    add(
        "--timeout",
        type=period(0.001),
        default=TIMEOUT,
        metavar="TIME",
        help=f"how long to wait for copies (default: {TIMEOUT:g}s)",
    )


@contextmanager
def _source(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115
    except OSError as error:
        raise Failure(f"{name}: {error.strerror}") from error
    with file:
        yield file


async def _run(call: Call) -> int:
    wanted = call.arguments
    done = 0
    with _source(wanted.file) as file:
        total = _lines(file)
        async with reach(call) as reached:
            status = reached.complain(call)
            progress = call.printer.progress("imported", total)
            for batch in batches(iter(file)):
                commands = [_command(call, entry, len(reached.members)) for entry in batch]
                answers = await _add(reached, commands, done)
                for (number, _), answer in zip(batch, answers, strict=True):
                    if isinstance(answer, DisqueError):
                        raise _stopped(number, answer)
                    done += 1
                progress.add(len(batch))
    call.printer.result({"imported": done}, f"imported {of_jobs(done)}", str(done))
    return status


def _command(call: Call, entry: tuple[int, bytes], nodes: int) -> list[Argument]:
    number, line = entry
    wanted = call.arguments
    try:
        command = command_of(line, nodes, wanted.remember, wanted.timeout)
    except ValueError as error:
        raise Failure(f"line {number}: {error}") from error
    if wanted.queue is not None:
        command[1] = to_bytes(wanted.queue)
    if wanted.replicate is not None:
        command[command.index("REPLICATE") + 1] = wanted.replicate
    if not command[1]:
        raise Failure(f"line {number}: not a job: it has no queue")
    return command


def _stopped(number: int, why: DisqueError) -> Failure:
    return Failure(f"line {number}: {why} (the same command goes on with the rest)")


async def _add(reached: Reached, commands: Sequence[list[Argument]], done: int) -> list[Reply]:
    """Add jobs on one of the nodes, in turn; all have keys, so that another may be asked again if
    one is lost."""
    problem: ConnectionLost | None = None
    members = reached.members
    while members:
        member: Member = members[done // BATCH % len(members)]
        try:
            return await member.ask_all(commands)
        except ConnectionLost as error:
            problem = error
            members.remove(member)
    raise Failure(f"no node is left: {problem} (the same command goes on with the rest)")


SUBCOMMAND: Final = Subcommand(_describe, _run)
