"""``disque definitions export``: writes what people have set for a cluster."""

import json
import os
from pathlib import Path
from typing import Any, Final

from disque_trio.cli.subcommands.definitions import KINDS, read
from disque_trio.cli.subcommands.reach import reach
from disque_trio.cli.subcommands.subcommand import Call, Failure, Subcommand
from disque_trio.process.options import Parser

PRIVATE: Final = 0o600  # the file has the hashes of passwords


def _describe(parser: Parser) -> None:
    parser.add_argument(
        "--only", action="append", choices=KINDS, help="only these; may be repeated (default: all)"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="a new file (default: standard output)"
    )


async def _run(call: Call) -> int:
    wanted: Any = call.arguments
    async with reach(call) as reached:
        status = reached.complain(call)
        found, left_out = await read(call, reached, wanted.only or KINDS)
    content = json.dumps(found, indent=None if call.printer.json else 2, sort_keys=True)
    if wanted.output is None:
        call.printer.line(content)
    else:
        _write(wanted.output, content)
        counts = ", ".join(f"{len(found[kind])} {kind}" for kind in KINDS if kind in found)
        call.printer.tell(f"exported {counts}")
    return left_out or status


def _write(path: Path, content: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{content}\n")
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None


SUBCOMMAND: Final = Subcommand(_describe, _run)
