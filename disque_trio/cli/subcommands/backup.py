"""``disque backup``: copies the files of the nodes of this machine, while they serve.

An append-only file only grows, or is replaced by another one as a whole. So what it has when it is
opened is what the node has said is done, even if it goes on writing or begins a new file meanwhile;
the last record may be cut off, which the start of a node expects. Its checksums are made of what
was copied, since those beside it may belong to the new file already.
"""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import trio

from disque_trio import humanize
from disque_trio.aof.checksums import BLOCK, ENDING, MAGIC, pack_entries
from disque_trio.cli.subcommands.printing import as_json
from disque_trio.cli.subcommands.progress import Meter
from disque_trio.cli.subcommands.reach import Member, reach
from disque_trio.cli.subcommands.subcommand import Call, Failure, Subcommand
from disque_trio.process.options import Parser
from disque_trio.respclient.errors import DisqueError
from disque_trio.respclient.values import elements, text

CHUNK: Final = 256 * BLOCK
MANIFEST: Final = "backup.json"
BESIDE: Final = (".policies", ".schedules", ".bindings", ".pauses")
"""Follow the name of ``nodes.conf``."""


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """The files of a node. aof: the append-only one. small: what it knows of its cluster, of
    policies, schedules and the like."""

    aof: Path
    small: tuple[Path, ...]


async def _files(call: Call, member: Member) -> NodeFiles:
    """Raises DisqueError; Failure: the node has no files, or they are not here."""
    if await _setting(member, "appendonly") != "yes":
        raise Failure("it keeps nothing on disk: appendonly no")
    directory = Path(await _setting(member, "dir"))
    return await trio.to_thread.run_sync(_look, call, member, directory)


def _look(call: Call, member: Member, directory: Path) -> NodeFiles:
    """The files of a node in its directory. Raises Failure."""
    nodes = directory / call.arguments.cluster_config_file
    try:
        known = nodes.read_text()
    except OSError as error:
        raise Failure(f"its files are not here ({nodes}: {error.strerror})") from error
    if not any(line.startswith(member.id) and "myself" in line for line in known.splitlines()):
        raise Failure(f"its files are not here ({nodes} is of another node)")
    beside = [nodes.with_name(nodes.name + ending) for ending in BESIDE]
    small = [nodes, *[path for path in beside if path.exists()]]
    return NodeFiles(directory / call.arguments.appendfilename, tuple(small))


async def _setting(member: Member, name: str) -> str:
    reply = elements(await member.ask("CONFIG", "GET", name))
    return text(reply[1]) if len(reply) > 1 else ""


def copy_prefix(source: BinaryIO, size: int, target: Path, progress: Meter) -> None:
    """Copy the first ``size`` bytes of an append-only file, and make its checksums. Both are on
    disk afterwards. Raises OSError."""
    with (
        target.open("xb") as copy,
        target.with_name(target.name + ENDING).open("xb") as sums,
    ):
        sums.write(MAGIC)
        at = 0
        while at < size:
            data = source.read(min(CHUNK, size - at))
            if not data:
                raise OSError(f"it ended at {at:,} of {size:,} bytes")
            copy.write(data)
            sums.write(pack_entries(at, data))
            at += len(data)
            progress.add(len(data))
        for file in (copy, sums):
            file.flush()
            os.fsync(file.fileno())


def _describe(parser: Parser) -> None:
    add = parser.add_argument
    add("directory", type=Path, metavar="DIR", help="a new directory")
    # CONFIG GET does not tell them.
    for name, default in (("appendfilename", "disque.aof"), ("cluster-config-file", "nodes.conf")):
        add(
            f"--{name}",
            default=default,
            metavar="NAME",
            help=f"as in the configuration of the nodes (default: {default})",
        )


async def _run(call: Call) -> int:
    target: Path = call.arguments.directory
    done: list[dict[str, Any]] = []
    async with reach(call) as reached:
        status = reached.complain(call)
        _make(target)
        for member in reached.members:
            try:
                files = await _files(call, member)
                done.append(await trio.to_thread.run_sync(_copy, call, member, files, target))
            except (Failure, DisqueError, OSError) as error:
                call.printer.complain(f"{member.address} is left out: {error}")
                status = 1
    _sign(target, done)
    for each in done:
        if call.printer.json:
            call.printer.record(each)
        else:
            call.printer.line(f"{each['node']}: {humanize.size(each['bytes'])} in {each['copy']}")
    return status


def _make(target: Path) -> None:
    try:
        target.mkdir(parents=True)
    except OSError as error:
        raise Failure(f"{target}: {error.strerror}") from error


def _sign(target: Path, done: list[dict[str, Any]]) -> None:
    """Write what was copied. Raises Failure: nothing was."""
    if not done:
        target.rmdir()
        raise Failure("no node was copied")
    (target / MANIFEST).write_text("".join(f"{as_json(each)}\n" for each in done))


def _copy(call: Call, member: Member, files: NodeFiles, target: Path) -> dict[str, Any]:
    """Copy the files of a node. Returns what to tell. Raises OSError."""
    own = target / member.id
    own.mkdir()
    began = time.time()
    try:
        with files.aof.open("rb") as source:
            size = os.fstat(source.fileno()).st_size
            progress = call.printer.progress(f"bytes of {member.address}", size)
            copy_prefix(source, size, own / files.aof.name, progress)
        for path in files.small:
            shutil.copyfile(path, own / path.name)
    except BaseException:
        shutil.rmtree(own)
        raise
    return {
        "node": member.address,
        "id": member.id,
        "copy": str(own),
        "bytes": size,
        "at": round(began, 3),
    }


SUBCOMMAND: Final = Subcommand(_describe, _run)
