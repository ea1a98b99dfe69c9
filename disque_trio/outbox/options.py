"""What ``disque-outbox`` and ``manage.py disque_outbox`` are told."""

import argparse
import math
import os

from disque_trio.respclient.arguments import add_certificate_options

UNIQUE_FOR = 86400  # s
# s: twice the longest time after which a row whose fate is unknown is sent again.
LEAST_UNIQUE_FOR = 600
KEEP_HELP = "let forwarded rows stay for so long, with the id of the job (default: delete them)"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that do not depend on the kind of the program."""
    parser.add_argument(
        "--nodes",
        nargs="+",
        default=["127.0.0.1:7711"],
        metavar="HOST:PORT",
        help="some nodes of the cluster, or their URLs, such as disques://user:password@host:7711"
        " for TLS (default: 127.0.0.1:7711)",
    )
    parser.add_argument("--user", metavar="NAME", help="whose password that of the nodes is")
    parser.add_argument("--tls", action="store_true", help="connect to the nodes by TLS")
    add_certificate_options(parser.add_argument)
    parser.add_argument(
        "--batch", type=_count, default=100, metavar="N", help="rows at a time (default: 100)"
    )
    parser.add_argument(
        "--poll",
        type=_seconds,
        default=1.0,
        metavar="SECONDS",
        help="look for new rows so often; with PostgreSQL and psycopg 3 they are forwarded at once"
        " (default: 1)",
    )
    parser.add_argument(
        "--unique-for",
        type=_unique_for,
        default=float(UNIQUE_FOR),
        metavar="SECONDS",
        help="the nodes keep the key of a job for so long: within it a row that was sent, and not"
        " deleted, does not become a second job (default: 86400, a day)",
    )
    parser.add_argument("--keep", type=_seconds, metavar="SECONDS", help=KEEP_HELP)
    parser.add_argument("--once", action="store_true", help="forward what is there, and end")
    parser.add_argument(
        "--check", action="store_true", help="say whether the table and a node can be reached"
    )
    parser.add_argument(
        "--otel",
        action="store_true",
        help="trace with OpenTelemetry, as the environment says (OTEL_EXPORTER_OTLP_ENDPOINT, ...)",
    )
    parser.add_argument(
        "--log-level", choices=("debug", "verbose", "notice", "warning"), default="notice"
    )
    parser.add_argument("--log-format", choices=("auto", "console", "json"), default="auto")


def password() -> str | None:
    """That of the nodes."""
    return os.environ.get("DISQUECLI_AUTH")


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def _unique_for(text: str) -> float:
    value = _seconds(text)
    if value < LEAST_UNIQUE_FOR:
        raise argparse.ArgumentTypeError(f"at least {LEAST_UNIQUE_FOR}")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("more than 0")
    return value
