"""What command lines have in common: the parser, options that several have, types of values.

Loads nothing that ``--help`` does not need.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar

from disque_trio.notation import periods, rates, sizes
from disque_trio.notation.addresses import MAX_PORT, read_address
from disque_trio.version import VERSION

LOOPBACK: Final = "127.0.0.1"
_NODE: Final = f"{LOOPBACK}:7711"


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and that suggests an option instead of an unknown one.
    Description and epilog keep their lines."""

    def __init__(self, prog: str | None = None, **settings: Any) -> None:
        super().__init__(prog, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = sys.argv[1:] if args is None else list(args)
        below = [a.choices for a in self._actions if isinstance(a, argparse._SubParsersAction)]
        # argparse alone would take the value of an unknown option for a command.
        for word in words:
            name = word.partition("=")[0]
            if name == "--" or any(word in commands for commands in below):
                break
            if name.startswith("--") and not any(
                known.startswith(name) for known in self._option_string_actions
            ):
                self._refuse(name)
        options, unknown = super().parse_known_args(words, namespace)
        if unknown:
            self._refuse(unknown[0].partition("=")[0])
        return options, unknown

    def _refuse(self, name: str) -> NoReturn:
        from difflib import get_close_matches  # slow to import

        near = get_close_matches(name, self._option_string_actions, 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        self.error(f"no such argument: {name}{meant}")

    def error(self, message: str) -> NoReturn:
        # With the usage before it, it would be easy to miss.
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


# ---- options ---------------------------------------------------------------------------------
# ``add`` is the ``add_argument`` of a parser or a group.

Add = Callable[..., object]


def add_version_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--version``."""
    parser.add_argument("--version", action="version", version=f"{parser.prog} {VERSION}")


def add_log_options(add: Add) -> None:
    """Add the options for the log."""
    add(
        "--log-level",
        choices=("debug", "verbose", "notice", "warning"),
        default="notice",
        help="the lowest level to log (default: notice)",
    )
    add(
        "--log-format",
        choices=("auto", "console", "json"),
        default="auto",
        help="auto: readable text on a terminal, otherwise JSON",
    )


def add_nodes_option(add: Add, more: str = "") -> None:
    """Add ``--nodes``, for ``Cluster.of``. ``more``: what to say of them."""
    add(
        "--nodes",
        nargs="+",
        default=[_NODE],
        metavar="HOST:PORT",
        help="some nodes of the cluster, or their URLs, such as disques://user:password@host:7711"
        f" for TLS{more} (default: {_NODE})",
    )


def add_login_options(add: Add, whom: str = "the nodes") -> None:
    """Add the options for logging in to ``whom``, and for TLS; the password is not among them. The
    names are those of redis-cli; ``respclient.tls.of_arguments`` reads those of certificates."""
    add("--user", metavar="NAME", help=f"the user to log in to {whom} as")
    add("--tls", action="store_true", help=f"connect to {whom} over TLS")
    add("--cacert", metavar="FILE", help="CA certificates to trust (PEM)")
    add("--cert", metavar="FILE", help="client certificate (PEM)")
    add("--key", metavar="FILE", help="key of the client certificate, if in another file")
    add("--sni", metavar="NAME", help="name that the server's certificate must have")
    add("--insecure", action="store_true", help="trust any certificate")


def add_metrics_option(add: Add, pages: str = "/metrics for Prometheus") -> None:
    """Add ``--metrics``: where to serve ``pages``."""
    add(
        "--metrics",
        type=place,
        metavar="[HOST:]PORT",
        help=f"serve {pages} at this address (default host: {LOOPBACK})",
    )


def add_otel_option(add: Add) -> None:
    """Add ``--otel``."""
    add(
        "--otel",
        action="store_true",
        help="trace with OpenTelemetry, configured by OTEL_EXPORTER_OTLP_ENDPOINT and the like",
    )


# ---- types of values -------------------------------------------------------------------------
# They raise ``argparse.ArgumentTypeError``.


N = TypeVar("N", int, float)


def whole(least: int = 0, most: int = 2**63 - 1) -> Callable[[str], int]:
    """The type of a whole number from ``least`` to ``most``."""
    return _within(_read_whole, f"a number of at least {least}", least, most)


def period(least: float = 0, most: float = 36_500 * 86_400) -> Callable[[str], float]:
    """The type of a time from ``least`` to ``most`` seconds; dates have a limit."""
    return _within(periods.read_period, _period_of(least), least, most)


def whole_period(least: int = 0, most: int = 36_500 * 86_400) -> Callable[[str], int]:
    """The same in whole seconds."""
    return _within(_read_whole_period, f"{_period_of(least)}, in whole seconds", least, most)


def count(text: str) -> int:
    """The type of a number of at least 1."""
    return whole(1)(text)


def port(text: str) -> int:
    """The type of a TCP port."""
    return whole(1, MAX_PORT)(text)


def size(text: str) -> int:
    """The type of a number of bytes, not 0."""
    return _within(sizes.read_size, sizes.EXPECTED, 1, 2**63 - 1)(text)


def rate(text: str) -> float:
    """The type of a rate above 0, in a second."""
    times, seconds = rates.read_rate(text) or (0, 1)
    if not times:
        raise _wrong(rates.EXPECTED, text)
    return times / seconds


def address(text: str, port: int | None = None, host: str | None = None) -> tuple[str, int]:
    """The host and port of a server; the arguments are those of ``read_address``."""
    try:
        found = read_address(text, port, host)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from None
    return found.host, found.port


def place(text: str) -> tuple[str, int]:
    """The type of an address to listen on, with 127.0.0.1 for a port alone."""
    return address(text, host=LOOPBACK)


def _within(
    read: Callable[[str], N | None], expected: str, least: N, most: N
) -> Callable[[str], N]:
    def parse(text: str) -> N:
        value = read(text)
        if value is None or value < least:
            raise _wrong(expected, text)
        if value > most:
            raise _wrong(f"at most {most}", text)
        return value

    return parse


def _read_whole(text: str) -> int | None:
    # int() refuses thousands of digits.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 100 else None


def _read_whole_period(text: str) -> int | None:
    seconds = periods.read_period(text)
    return None if seconds is None or seconds != int(seconds) else int(seconds)


def _period_of(least: float) -> str:
    return f"{periods.EXPECTED}, at least {least:g} s" if least else periods.EXPECTED


def _wrong(expected: str, text: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"expected {expected}, not {text[:100]!r}")
