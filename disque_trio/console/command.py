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
from disque_trio.process.arguments import hide
from disque_trio.respclient.arguments import add_certificate_options
from disque_trio.version import VERSION

if TYPE_CHECKING:
    from disque_trio.client.urls import Cluster

FAILED = 1
_EXTRA = ("starlette", "hypercorn", "jinja2", "markupsafe", "itsdangerous")
EPILOG = """\
The password of the nodes is in --password-file, or in the environment variable DISQUECLI_AUTH.

Exit status: 0 ended by SIGTERM or SIGINT; 1 failed; 2 wrong arguments.

examples:
  disque-console --nodes 10.0.0.1:7711
  disque-console --hash-password >> users      (then put "name:role:" before the hash)
  disque-console --nodes 10.0.0.1:7711 --listen 0.0.0.0:8711 --users users \\
    --certificate console.pem --key console.key --secret-file secret --audit-log audit.log
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        import trio

        from disque_trio.console.model.passwords import hash_password
        from disque_trio.console.running import Settings, run
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _EXTRA:
            raise
        return _fail(f"it needs the extra web: {how_to_install('web')}")
    from disque_trio.process.logs import Logging

    if options.hash_password:
        print(hash_password(_new_password()))
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
            bananaq=options.bananaq,
        )
    except (OSError, ValueError) as error:
        parser.error(str(error))
    log = Logging(options.log_level, options.log_format).log
    if not (options.users or options.acl):
        log.warning("nobody has to log in: all who reach it may do everything (see --users)")
    problems: list[str] = []
    try:
        trio.run(partial(run, settings, log))
    except* (OSError, ValueError) as group:
        problems.append(str(_first(group)))
    return _fail(problems[0]) if problems else 0


def _fail(text: str) -> int:
    print(f"disque-console: {text}", file=sys.stderr)
    return FAILED


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


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
    """Raises OSError, ValueError."""
    from disque_trio.client.urls import Cluster
    from disque_trio.respclient.tls import Tls, of_arguments

    tls = of_arguments(options)
    if not options.tls and tls != Tls():
        raise ValueError("--cacert, --cert, --key, --sni and --insecure are for --tls")
    password = os.environ.get("DISQUECLI_AUTH")
    if options.password_file:
        password = Path(options.password_file).read_text(encoding="utf-8").rstrip("\r\n")
    nodes = [node for word in options.nodes for node in word.split(",") if node]
    found = Cluster.of(nodes, options.user, password, tls if options.tls else None)
    hide([word for word in options.nodes if "@" in word])
    return found


def _listen(options: argparse.Namespace) -> str:
    """What to bind to. Raises ValueError."""
    listen: str = options.listen
    if listen.startswith("/"):
        listen = f"unix:{listen}"
    guarded = options.users or options.acl or options.no_login
    if guarded or listen.startswith("unix:") or _is_loopback(listen):
        return listen
    raise ValueError(
        f"--listen {listen}: without --users or --acl all who reach it may do everything, so it"
        " listens on a loopback address only; --no-login says that this is wanted"
    )


def _is_loopback(listen: str) -> bool:
    import ipaddress

    host = listen.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _prefix(text: str) -> str:
    """Raises ValueError."""
    if text and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+/?", text):
        raise ValueError(f"--prefix {text}: a path like /disque")
    return text.rstrip("/")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="disque-console",
        description="Show a cluster in the browser, and act on it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--version", action="version", version=f"disque-console {VERSION}")
    add(
        "--nodes",
        nargs="+",
        default=["127.0.0.1:7711"],
        metavar="HOST:PORT",
        help="some nodes of the cluster, or their URLs, such as disques://user:password@host:7711"
        " for TLS; the others are found (default: 127.0.0.1:7711)",
    )
    add("--user", metavar="NAME", help="whose password that of the nodes is")
    add("--password-file", metavar="FILE", help="the password of the nodes")
    add("--tls", action="store_true", help="connect to the nodes by TLS")
    add_certificate_options(parser.add_argument)
    add(
        "--listen",
        default="127.0.0.1:8711",
        metavar="HOST:PORT",
        help="where browsers reach it, or the path of a unix socket (default: 127.0.0.1:8711)",
    )
    add("--certificate", default="", metavar="FILE", help="serve HTTPS with this (PEM)")
    add(
        "--certificate-key",
        default="",
        metavar="FILE",
        help="its key, if it is not in the same file",
    )
    add("--prefix", default="", metavar="/PATH", help="of all pages, behind a proxy")
    add(
        "--trusted-proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="a proxy whose X-Forwarded-For, -Proto and -Host count",
    )
    who = parser.add_mutually_exclusive_group()
    who.add_argument(
        "--users", default="", metavar="FILE", help="who may log in: lines name:role:hash"
    )
    who.add_argument(
        "--acl", action="store_true", help="log in with the users of the cluster (ACL)"
    )
    who.add_argument(
        "--no-login",
        action="store_true",
        help="nobody has to log in, wherever it listens: all who reach it may do everything",
    )
    add(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which browsers call it, where nobody has to log in",
    )
    add(
        "--secret-file",
        default="",
        metavar="FILE",
        help="signs sessions, and is made if it is not there; without it all have to log in again"
        " after a restart",
    )
    add("--hash-password", action="store_true", help="ask for a password, print its hash and end")
    add("--events", default="", metavar="DIR", help="the event logs of the nodes, for timelines")
    add("--audit-log", default="", metavar="FILE", help="who did what (default: in the log)")
    add("--bananaq", default="", metavar="HOST:PORT", help="a bananaq to show as well")
    add("--log-level", choices=("debug", "verbose", "notice", "warning"), default="notice")
    add("--log-format", choices=("auto", "console", "json"), default="auto")
    return parser


if __name__ == "__main__":
    sys.exit(main())
