"""The options of ``disque-outbox`` and ``manage.py disque_outbox``."""

import argparse
import os

from disque_trio.process.options import (
    add_log_options,
    add_login_options,
    add_nodes_option,
    add_otel_option,
    count,
    period,
)

UNIQUE_FOR = 86400  # s
# s: twice the maximum time after which a row with an unknown result is sent again.
LEAST_UNIQUE_FOR = 600
SHORTEST = 0.001  # s
KEEP_HELP = "keep forwarded rows for this long, with the job id (default: delete them)"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that both programs have."""
    add = parser.add_argument
    add_nodes_option(add)
    add_login_options(add)
    add("--batch", type=count, default=100, metavar="N", help="rows at a time (default: 100)")
    add(
        "--poll",
        type=period(SHORTEST),
        default=1.0,
        metavar="TIME",
        help="time between polls for new rows (default: 1s); PostgreSQL with psycopg 3 does not"
        " need to poll and forwards them at once",
    )
    add(
        "--unique-for",
        type=period(LEAST_UNIQUE_FOR),
        default=float(UNIQUE_FOR),
        metavar="TIME",
        help="how long the nodes keep the key of a job, so that a row that is sent again"
        " does not become a second job (default: 1d)",
    )
    add("--keep", type=period(SHORTEST), metavar="TIME", help=KEEP_HELP)
    add("--once", action="store_true", help="forward the existing rows, then exit")
    add("--check", action="store_true", help="check that the table and a node can be reached")
    add_otel_option(add)
    add_log_options(add)


def password() -> str | None:
    """Return the password of the nodes."""
    return os.environ.get("DISQUECLI_AUTH")
