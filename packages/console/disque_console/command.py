"""``disque-console``: a cluster in the browser."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from disque_trio.extras import how_to_install
from disque_trio.notation.addresses import AmbiguousError, format_address, read_address
from disque_trio.process.arguments import hide
from disque_trio.process.one_line import add_debug_option, one_line, show_traceback
from disque_trio.process.options import (
    LOOPBACK,
    Parser,
    add_log_options,
    add_login_options,
    add_nodes_option,
    add_version_option,
)

if TYPE_CHECKING:
    from disque_trio.client.urls import Cluster

FAILED = 1
_EXTRA = ("starlette", "hypercorn", "jinja2", "markupsafe", "itsdangerous")
_SCHEMES = {"": "", "bananaq": "disque://", "bananaqs": "disques://"}
EPILOG = """\
Put the password of the nodes in --password-file or in the environment variable DISQUECLI_AUTH.

Exit status: 0 stopped by SIGTERM or SIGINT; 1 failed; 2 wrong arguments.

examples:
  disque-console --nodes 10.0.0.1:7711
  disque-console --hash-password >> users      (then put "name:role:" before the hash)
  disque-console --nodes 10.0.0.1:7711 --listen 0.0.0.0:8711 --users users \\
    --certificate console.pem --certificate-key console.key --secret-file secret \\
    --audit-log audit.log
"""


@one_line("disque-console")
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        import trio

        from disque_console.model.passwords import hash_password
        from disque_console.running import Settings, run
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _EXTRA:
            raise
        return _fail(f"the extra web is missing: {how_to_install('web')}")
    from disque_trio.process.logs import Logging
    from disque_trio.respclient.errors import first_of
    from disque_trio.respclient.log import lines_go_to

    if options.hash_password:
        password = _new_password()
        if not password:
            return _fail("the password is empty")
        print(hash_password(password))
        return 0
    try:
        settings = Settings(
            cluster=_cluster(options),
            listen=_listen(options),
            certificate=options.certificate,
            key=options.certificate_key,
            prefix=_prefix(options.prefix),
            trusted=frozenset(options.trusted_proxy),
            users=options.users,
            acl=options.acl,
            hosts=frozenset(name.lower() for name in options.host),
            secret=options.secret_file,
            events=options.events,
            audit=options.audit_log,
            bananaq=_bananaq(options.bananaq) if options.bananaq else None,
            trace_url=_trace_url(options.trace_url),
            state=options.state_dir,
        )
    except ValueError as error:
        parser.error(str(error))
    log = Logging(options.log_level, options.log_format).log
    lines_go_to(log)
    audit_log = Logging("notice", options.log_format).log  # whatever --log-level hides
    if not (options.users or options.acl):
        log.warning("no login required: anyone who can connect may do anything (see --users)")
    problems: list[str] = []
    try:
        trio.run(partial(run, settings, log, audit_log))
    except* (OSError, ValueError) as group:
        show_traceback(options.debug)
        problems.append(str(first_of(group)))
    return _fail(problems[0]) if problems else 0


def _fail(text: str) -> int:
    print(f"disque-console: {text}", file=sys.stderr)
    return FAILED


def _new_password() -> str:
    import getpass

    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    while True:
        password = getpass.getpass("Password: ")
        if password == getpass.getpass("Again: "):
            return password
        print("They differ.", file=sys.stderr)


def _cluster(options: argparse.Namespace) -> "Cluster":
    """Raises ValueError."""
    from disque_console.running import naming
    from disque_trio.client.urls import Cluster
    from disque_trio.respclient.tls import of_arguments

    tls = of_arguments(options, options.tls)
    password = os.environ.get("DISQUECLI_AUTH")
    if options.password_file:
        with naming(f"--password-file {options.password_file}"):
            password = Path(options.password_file).read_text(encoding="utf-8").rstrip("\r\n")
    nodes = [node for word in options.nodes for node in word.split(",") if node]
    found = Cluster.of(nodes, options.user, password, tls)
    hide([word for word in [*options.nodes, options.bananaq] if "@" in word])
    return found.named_after("disque-console")


def _bananaq(text: str) -> "Cluster":
    """The address of a bananaq, and how to log in to it. Raises ValueError."""
    from disque_trio.client.urls import Cluster

    form = "--bananaq: use host:port, bananaq://user:password@host:port, or bananaqs:// for TLS"
    scheme, _, rest = text.rpartition("://")
    try:
        found = Cluster.of(_SCHEMES[scheme] + rest)
    except AmbiguousError as wrong:
        raise ValueError(f"--bananaq: {wrong}") from None
    except (KeyError, ValueError):
        # The reason may contain part of a password.
        raise ValueError(form) from None
    if len(found.nodes) > 1:
        raise ValueError(form)
    return found


def _trace_url(text: str) -> str:
    """The address of the page of a trace, or empty. Raises ValueError."""
    if text and not (text.startswith(("http://", "https://")) and "{trace}" in text):
        raise ValueError(
            f"--trace-url {text}: use a URL with {{trace}} for the id of the trace, such as"
            " http://jaeger.example:16686/trace/{trace}"
        )
    return text


def listening(text: str) -> tuple[str, str]:
    """The address to bind to, and its host, empty for a socket. Raises ValueError."""
    if text.startswith("/"):
        text = f"unix:{text}"
    if text.startswith(("unix:", "fd://")):
        return text, ""
    found = read_address(text, host=LOOPBACK, lowest=0)
    return format_address(found.host, found.port), found.host


def _listen(options: argparse.Namespace) -> str:
    """The address to bind to. Raises ValueError."""
    try:
        listen, host = listening(options.listen)
    except ValueError as wrong:
        raise ValueError(f"--listen {options.listen}: {wrong}") from None
    guarded = options.users or options.acl or options.no_login
    if guarded or listen.startswith("unix:") or _is_loopback(host):
        return listen
    raise ValueError(
        f"--listen {listen}: without --users or --acl anyone who can connect may do anything, so"
        " the address must be a loopback address; pass --no-login to listen here anyway"
    )


def _is_loopback(host: str) -> bool:
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _prefix(text: str) -> str:
    """Raises ValueError."""
    if text and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+/?", text):
        raise ValueError(f"--prefix {text}: use a path like /disque")
    return text.rstrip("/")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="disque-console",
        description="Show a cluster in the browser and operate it.",
        epilog=EPILOG,
    )
    add = parser.add_argument
    add_version_option(parser)
    add_debug_option(parser.add_argument)
    add_nodes_option(add, "; the console finds the others")
    add("--password-file", metavar="FILE", help="file with the password of the nodes")
    add_login_options(add)
    add(
        "--listen",
        default="127.0.0.1:8711",
        metavar="[HOST:]PORT",
        help="address to serve, or the path of a Unix socket (default: 127.0.0.1:8711)",
    )
    add("--certificate", default="", metavar="FILE", help="serve HTTPS with this certificate (PEM)")
    add(
        "--certificate-key",
        default="",
        metavar="FILE",
        help="the key of the certificate, if it is not in the same file",
    )
    add("--prefix", default="", metavar="/PATH", help="path prefix of all pages, behind a proxy")
    add(
        "--trusted-proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="a proxy whose X-Forwarded-For, -Proto and -Host to trust",
    )
    who = parser.add_mutually_exclusive_group()
    who.add_argument(
        "--users",
        default="",
        metavar="FILE",
        help="file with the users who may log in: lines name:role:hash",
    )
    who.add_argument("--acl", action="store_true", help="log in as users of the cluster (ACL)")
    who.add_argument(
        "--no-login",
        action="store_true",
        help="require no login at any address: anyone who can connect may do anything",
    )
    add(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host name that browsers use for the console, if no login is required",
    )
    add(
        "--secret-file",
        default="",
        metavar="FILE",
        help="secret that signs sessions, created if it does not exist; without it everybody has to"
        " log in again after a restart",
    )
    add("--hash-password", action="store_true", help="ask for a password, print its hash and exit")
    add("--events", default="", metavar="DIR", help="event logs of the nodes, for job histories")
    add(
        "--audit-log",
        default="",
        metavar="FILE",
        help="record who did what in this file (default: the log)",
    )
    add(
        "--bananaq",
        default="",
        metavar="HOST:PORT",
        help="a bananaq to show as well, or its URL: bananaq://user:password@host:port, or bananaqs://"
        " for TLS",
    )
    add(
        "--trace-url",
        default="",
        metavar="URL",
        help="the page of a trace, with {trace} for its id: pages of traced jobs link to it",
    )
    add(
        "--state-dir",
        default=os.environ.get("STATE_DIRECTORY", "").partition(":")[0],
        metavar="DIR",
        help="keep the charts of the last 24 hours in this directory (default: that of systemd's"
        " StateDirectory=; without any, they end with the console)",
    )
    add_log_options(add)
    return parser


if __name__ == "__main__":
    sys.exit(main())
