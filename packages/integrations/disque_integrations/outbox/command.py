"""``disque-outbox``: forwards the rows of an outbox in a database that SQLAlchemy supports."""

import argparse
import os
import sys
from collections.abc import Sequence

from disque_integrations.outbox.options import add_options
from disque_trio.extras import how_to_install
from disque_trio.process.one_line import add_debug_option, one_line
from disque_trio.process.options import Parser, add_version_option

FAILED = 1
EPILOG = """\
The environment variable DISQUE_OUTBOX_DATABASE replaces --database, which others can see in the
process list. Put the password of the nodes in DISQUECLI_AUTH.

Exit status: 0 done, or stopped by SIGTERM or SIGINT; 1 failed, or with --once, not everything was
forwarded; 2 wrong arguments.

examples:
  disque-outbox --database postgresql://app@localhost/app --nodes 10.0.0.1:7711 10.0.0.2:7711
  disque-outbox --database sqlite:////var/lib/app/app.db --once
"""


@one_line("disque-outbox")
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = _parser().parse_args(arguments)
    database = options.database or os.environ.get("DISQUE_OUTBOX_DATABASE")
    if not database:
        _parser().error("set --database or DISQUE_OUTBOX_DATABASE")
    try:
        from disque_integrations.outbox.sql import SqlStore, engine_for
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "sqlalchemy":
            raise
        return _fail(f"SQLAlchemy is missing: {how_to_install('outbox')}")
    from sqlalchemy.exc import SQLAlchemyError

    from disque_integrations.outbox.running import run

    try:
        store = SqlStore(engine_for(database), options.table)
    except ModuleNotFoundError as missing:
        return _fail(f"the database driver is not installed: {missing.name}")
    except SQLAlchemyError as error:
        return _fail(f"--database: {error}")
    return run(store, options)


def _fail(text: str) -> int:
    print(f"disque-outbox: {text}", file=sys.stderr)
    return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="disque-outbox",
        description="Forward the jobs that programs add in their database transactions.",
        epilog=EPILOG,
    )
    add_version_option(parser)
    add_debug_option(parser.add_argument)
    parser.add_argument("--database", metavar="URL", help="URL of the database, as in SQLAlchemy")
    parser.add_argument(
        "--table",
        default="disque_outbox",
        metavar="[SCHEMA.]NAME",
        help="table with the rows (default: disque_outbox)",
    )
    add_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
