"""The options of the ``pressure`` command: their names, defaults and help."""

import argparse
from collections.abc import Sequence

from disque_pressure.urls import Url
from disque_trio.process.one_line import add_debug_option
from disque_trio.process.options import (
    Parser,
    add_login_options,
    add_version_option,
    address,
    count,
    period,
    port,
    size,
    whole,
    whole_period,
)

EPILOG = """\
Options that are not given come from the environment variables REDIS_SERVER, REDIS_PORT, REDIS_DB
and PRESSURE_PREFIX, or else default to 127.0.0.1, 6379, 0 and __pressure__. Passwords are read
from REDISCLI_AUTH for Redis, REDISCLI_SENTINEL_AUTH for sentinels and DISQUECLI_AUTH for Disque.
In a cluster, all keys of a queue must be in one slot: put a part of the prefix or the name in
braces.

Exit status: 0 success; 1 failure, explained by a line on standard error; 2 wrong arguments; 130 or
143 stopped by SIGINT or SIGTERM; 141 nobody reads the output any more.

examples:
  pressure create lines --bound 1000
  producer | pressure put lines --close
  pressure get lines | consumer
"""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line. If it is wrong, the program exits with status 2."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command == "pipe":
        to_pressure = options.from_disque is not None and options.to_pressure is not None
        to_disque = options.from_pressure is not None and options.to_disque is not None
        given = [options.from_disque, options.to_pressure, options.from_pressure, options.to_disque]
        if len([name for name in given if name is not None]) != 2 or to_pressure == to_disque:
            parser.error("pipe: give --from-disque and --to-pressure, or the other two")
        if options.close and not to_pressure:
            parser.error("pipe: --close is for --to-pressure")
    if options.command == "put" and options.bound is not None and not options.create:
        parser.error("put: --bound needs --create")
    if options.command == "doctor" and options.held_by is not None and options.free is None:
        parser.error("doctor: --held-by needs --free")
    _check_where(parser, options)
    return options


def _check_where(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    ways = {"--url": options.url, "--socket": options.socket, "--sentinel": options.sentinel}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        parser.error(f"give only one of {' and '.join(given)}")
    others = {"--server": options.server, "--port": options.port}
    if options.url is not None:
        others |= {"--db": options.db, "--user": options.user}
    for name, value in others.items():
        if given and value is not None:
            parser.error(f"{name} cannot be used with {given[0]}")
    if (options.sentinel is None) != (options.service is None):
        parser.error("--sentinel and --service belong together")
    if options.sentinel_user is not None and options.sentinel is None:
        parser.error("--sentinel-user needs --sentinel")
    if options.cluster and (options.sentinel or options.socket or options.db):
        parser.error("a cluster has no sentinels, no socket, and only database 0")
    if options.key is not None and options.cert is None:
        parser.error("--key needs --cert")
    tls = options.tls or (options.url is not None and options.url.tls)
    files = (options.cacert, options.cert, options.sni, options.insecure or None)
    if not tls and any(value is not None for value in files):
        parser.error("--cacert, --cert, --key, --sni and --insecure need --tls")
    if options.tls and (options.socket is not None or (options.url and options.url.socket)):
        parser.error("a Unix socket has no TLS")


def _parser() -> argparse.ArgumentParser:
    # An option that is absent after the command must not overwrite one given before it.
    common = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    _common(common)
    parser = Parser(
        prog="pressure",
        description="Bounded, exclusive FIFO queues in Redis, for shell pipelines.",
        epilog=EPILOG,
    )
    _common(parser)
    add_version_option(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, help: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, parents=[common], help=help, description=help)

    create = _named(command("create", "Create a queue."))
    _bound(create, "the most elements it may hold (default: no bound)")
    create.add_argument(
        "--force",
        action="store_true",
        help="remove the remains of a queue whose deletion a dead client left unfinished",
    )

    put = _named(command("put", "Put standard input into a queue, line by line."))
    framing = put.add_mutually_exclusive_group()
    framing.add_argument("-0", "--null", action="store_true", help="elements end with NUL, not LF")
    framing.add_argument(
        "-b",
        "--block",
        type=size,
        metavar="SIZE",
        help="for binary data: blocks of SIZE bytes, such as 64kb (k is 1000, kb is 1024)",
    )
    put.add_argument("--create", action="store_true", help="create the queue if there is none")
    _bound(put, "with --create: the most elements it may hold")
    put.add_argument("--close", action="store_true", help="close the queue at the end of the input")
    put.add_argument(
        "--hold",
        action="store_true",
        help="remain the producer throughout: nobody else can put or close in between",
    )

    get = _named(command("get", "Take elements out of a queue and write them, one per line."))
    get.add_argument("-n", "--count", type=count, metavar="N", help="end after N elements")
    get.add_argument("--no-wait", action="store_true", help="end when the queue is empty")
    framing = get.add_mutually_exclusive_group()
    framing.add_argument("-0", "--null", action="store_true", help="end elements with NUL, not LF")
    framing.add_argument(
        "-b", "--block", action="store_true", help="write nothing between elements"
    )

    tail = _named(command("tail", "Show the newest elements without taking them."))
    tail.add_argument(
        "-n", "--count", type=count, default=10, metavar="N", help="elements to show (default: 10)"
    )
    tail.add_argument(
        "-f", "--follow", action="store_true", help="show new elements as they arrive"
    )
    tail.add_argument("-0", "--null", action="store_true", help="end elements with NUL, not LF")

    _named(command("length", "Print how many elements a queue holds."))
    stats = _named(command("stats", "Print the statistics of a queue."))
    stats.add_argument("--json", action="store_true", help="print one JSON object")
    _named(command("close", "Close a queue: no more puts; gets work until it is empty."))
    _named(command("delete", "Delete a queue and all its elements."))
    listing = command("list", "List all queues with their lengths and bounds.")
    listing.add_argument("--json", action="store_true", help="print one JSON object per line")

    doctor = _named(command("doctor", "Show who holds the roles of a queue and what is wrong."))
    doctor.add_argument(
        "--free",
        choices=("producer", "consumer"),
        help="free this role if its holder is dead. Make sure that it is: if it is alive, two"
        " clients will have the role",
    )
    doctor.add_argument(
        "--held-by", metavar="ID", help="with --free: only if this client (still) holds the role"
    )

    pipe = command("pipe", "Move elements between Disque and pressure.")
    pipe.add_argument("--from-disque", metavar="QUEUE", help="take jobs from this queue")
    pipe.add_argument("--to-pressure", metavar="NAME", help="and put them here")
    pipe.add_argument("--from-pressure", metavar="NAME", help="take elements from this queue")
    pipe.add_argument("--to-disque", metavar="QUEUE", help="and add them here")
    pipe.add_argument(
        "--node",
        action="append",
        metavar="HOST:PORT",
        help="a Disque node, or its URL, such as disques://user:password@host:7711 for TLS; repeat"
        " it for several nodes (default: 127.0.0.1:7711). The environment variable DISQUECLI_AUTH"
        " holds a password for all of them",
    )
    pipe.add_argument("-n", "--count", type=count, metavar="N", help="end after N elements")
    pipe.add_argument("--no-wait", action="store_true", help="end when there is nothing to take")
    pipe.add_argument("--close", action="store_true", help="close the pressure queue at the end")
    pipe.add_argument("--replicate", type=count, metavar="N", help="copies of each job")
    pipe.add_argument(
        "--ttl", type=whole_period(1), metavar="TIME", help="time to live of each job, such as 1d"
    )
    pipe.add_argument("--retry", type=whole_period(), metavar="TIME", help="RETRY of each job")
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--server", metavar="HOST", help="host of Redis")
    add("--port", type=port, metavar="PORT", help="TCP port of Redis")
    add("--db", type=whole(), metavar="N", help="database number")
    add("--prefix", metavar="TEXT", help="prefix of all keys")
    add(
        "--timeout",
        type=period(),
        metavar="TIME",
        help="fail after waiting this long for a role, for space or for an element",
    )
    add("-q", "--quiet", action="store_true", help="do not show a progress line")
    add_debug_option(add)
    where = parser.add_argument_group("other ways to connect to Redis")
    add = where.add_argument
    add("--url", type=_url, metavar="URL", help="redis://, rediss:// or unix://")
    add("--socket", metavar="PATH", help="the Unix socket of Redis")
    add_login_options(add, "Redis")
    add("--cluster", action="store_true", help="Redis is a cluster; list asks all of its nodes")
    places = "HOST:PORT[,...]"
    add("--sentinel", type=_sentinels, metavar=places, help="ask these sentinels where Redis is")
    add("--service", metavar="NAME", help="name of the Redis, as the sentinels know it")
    add("--sentinel-user", metavar="NAME", help="user for the sentinels, if they have users")


def _named(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("name", metavar="NAME", help="name of the queue")
    return parser


def _bound(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--bound", type=whole(), metavar="N", help=help)


def _url(text: str) -> Url:
    try:
        return Url.parse(text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from None


def _sentinels(text: str) -> list[tuple[str, int]]:
    return [address(place) for place in text.split(",")]
