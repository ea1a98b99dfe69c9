"""The options of ``disque-outbox`` and ``manage.py disque_outbox``."""

import argparse
import os

from disque_trio.process.options import add_log_options, count, seconds
from disque_trio.respclient.arguments import add_certificate_options

UNIQUE_FOR = 86400  # s
# s: twice the maximum time after which a row with an unknown result is sent again.
LEAST_UNIQUE_FOR = 600
KEEP_HELP = "keep forwarded rows for this long, with the job id (default: delete them)"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that both programs have."""
    parser.add_argument(
        "--nodes",
        nargs="+",
        default=["127.0.0.1:7711"],
        metavar="HOST:PORT",
        help="some nodes of the cluster, or their URLs, such as disques://user:password@host:7711"
        " for TLS (default: 127.0.0.1:7711)",
    )
    parser.add_argument("--user", metavar="NAME", help="the user to log in to the nodes as")
    parser.add_argument("--tls", action="store_true", help="connect to the nodes over TLS")
    add_certificate_options(parser.add_argument)
    parser.add_argument(
        "--batch", type=count, default=100, metavar="N", help="rows at a time (default: 100)"
    )
    parser.add_argument(
        "--poll",
        type=_seconds,
        default=1.0,
        metavar="SECONDS",
        help="seconds between polls for new rows (default: 1); PostgreSQL with psycopg 3 does not"
        " need to poll and forwards them at once",
    )
    parser.add_argument(
        "--unique-for",
        type=_unique_for,
        default=float(UNIQUE_FOR),
        metavar="SECONDS",
        help="seconds for which the nodes keep the key of a job, so that a row that is sent again"
        " does not become a second job (default: 86400, a day)",
    )
    parser.add_argument("--keep", type=_seconds, metavar="SECONDS", help=KEEP_HELP)
    parser.add_argument("--once", action="store_true", help="forward the existing rows, then exit")
    parser.add_argument(
        "--check", action="store_true", help="check that the table and a node can be reached"
    )
    parser.add_argument(
        "--otel",
        action="store_true",
        help="trace with OpenTelemetry, configured by OTEL_EXPORTER_OTLP_ENDPOINT and the like",
    )
    add_log_options(parser.add_argument)


def password() -> str | None:
    """Return the password of the nodes."""
    return os.environ.get("DISQUECLI_AUTH")


def _unique_for(text: str) -> float:
    value = _seconds(text)
    if value < LEAST_UNIQUE_FOR:
        raise argparse.ArgumentTypeError(f"expected at least {LEAST_UNIQUE_FOR}, not {text}")
    return value


def _seconds(text: str) -> float:
    value = seconds(text)
    if value == 0:
        raise argparse.ArgumentTypeError("expected more than 0")
    return value
