"""Runs the console, the web server and the poller of the nodes, until a signal."""

import os
import secrets
import signal
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio
from hypercorn.config import Config, Sockets

from disque_console.io.accounts import Accounts, AclAccounts, Everybody, FileAccounts
from disque_console.io.audit import Audit
from disque_console.io.calls import Calls
from disque_console.io.connections import serve_browsers
from disque_console.io.history_file import HistoryFile
from disque_console.io.timelines import Timelines
from disque_console.model.attempts import Attempts, Browsers
from disque_console.model.sessions import Sessions
from disque_console.web.app import application
from disque_console.web.console import Console
from disque_trio.client.nodes import parse_address
from disque_trio.client.urls import Cluster as ClusterAddress
from disque_trio.overview.cluster import Cluster
from disque_trio.overview.looks import Looks
from disque_trio.overview.nodes import Nodes
from disque_trio.overview.poller import Poller
from disque_trio.process.logs import Log
from disque_trio.respclient.tls import Tls


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings from the command line.

    Attributes:
        cluster: nodes and login.
        listen: in Hypercorn's form, ``host:port`` or ``unix:/path``.
        certificate, key: PEM files; empty for no TLS.
        users: file, or empty. acl: log in as users of the cluster.
        hosts: host names to accept if no login is required.
        secret: file; empty for a new secret each time. audit: file; empty for the log.
        bananaq: address and login of a bananaq to show, or None.
        trace_url: of the page of a trace, with ``{trace}`` for its id; or empty.
        state: directory for charts; empty: they end with the console.
    """

    cluster: ClusterAddress
    listen: str
    certificate: str = ""
    key: str = ""
    prefix: str = ""
    trusted: frozenset[str] = frozenset()
    users: str = ""
    acl: bool = False
    hosts: frozenset[str] = frozenset()
    secret: str = ""
    events: str = ""
    audit: str = ""
    bananaq: ClusterAddress | None = None
    trace_url: str = ""
    state: str = ""


@contextmanager
def naming(what: str) -> Iterator[None]:
    """If something fails inside, say that it is about ``what``.

    Raises:
        ValueError: in place of the OSError or ValueError.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        raise ValueError(f"{what}: {getattr(error, 'strerror', None) or error}") from error


class _Listening(Config):
    """Hypercorn's settings, with errors that name the address."""

    def create_sockets(self) -> Sockets:
        with naming(f"--listen {self.bind[0].removeprefix('unix:')}"):
            return super().create_sockets()


def read_secret(path: str) -> bytes:
    """The secret in a file, which is created if it does not exist; without a file, a new secret.

    Raises:
        OSError: the file cannot be read or created. ValueError: the secret is too short.
    """
    if not path:
        return secrets.token_bytes(32)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        secret = Path(path).read_bytes().strip()
        if len(secret) < 32:
            raise ValueError("a secret needs at least 32 bytes") from None
        return secret
    secret = secrets.token_hex(32).encode()
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret + b"\n")
    return secret


_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


async def run(settings: Settings, log: Log, audit_log: Log) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP begins a new audit file if the old one was moved away.
    The audit goes to ``audit_log`` if it has no file.

    Raises:
        OSError, ValueError: a file or an address cannot be used.
    """
    with naming(f"--audit-log {settings.audit}"):
        audit = Audit(settings.audit, audit_log)
    history = HistoryFile(settings.state, log)
    try:
        async with trio.open_nursery() as nursery:
            console = _make(settings, nursery, audit, history, log)
            config = _config(settings)
            login = settings.cluster.login
            seeds = [parse_address(node) for node in settings.cluster.nodes]
            poller = Poller(console.cluster, seeds, login, console.looks, log)
            nursery.start_soon(poller.run)
            nursery.start_soon(history.run, lambda: console.cluster.ids)
            with trio.open_signal_receiver(*_SIGNALS) as signals:
                nursery.start_soon(_heed_signals, signals, console.stopping, audit)
                binds = await nursery.start(_serve, console, config)
                log.notice("listening", addresses=" ".join(binds), prefix=settings.prefix)
                await console.stopping.wait()
            log.notice("stopping")
            nursery.cancel_scope.deadline = trio.current_time() + config.graceful_timeout + 1
            await console.ended.wait()
            nursery.cancel_scope.cancel()
        await history.write(console.cluster.ids)
    finally:
        history.close()
        audit.close()


async def _serve(console: Console, config: Config, task_status: trio.TaskStatus[list[str]]) -> None:
    app: Any = application(console)
    try:
        await serve_browsers(app, config, console.stopping.wait, console.log, task_status)
    finally:
        console.ended.set()


async def _heed_signals(signals: Any, stopping: trio.Event, audit: Audit) -> None:
    async for number in signals:
        if number == signal.SIGHUP:
            await audit.reopen()
        else:
            stopping.set()


def _make(
    settings: Settings, nursery: trio.Nursery, audit: Audit, history: HistoryFile, log: Log
) -> Console:
    cluster = Cluster(history.histories)
    calls = Calls(nursery, cluster.nodes, settings.cluster.login)
    accounts: Accounts = Everybody(calls)
    if settings.users:
        with naming(f"--users {settings.users}"):
            accounts = FileAccounts(settings.users, calls, log)
    elif settings.acl:
        tls = settings.cluster.tls if isinstance(settings.cluster.tls, Tls) else None
        accounts = AclAccounts(nursery, cluster.nodes, calls, tls, log)
    with naming(f"--secret-file {settings.secret}"):
        secret = read_secret(settings.secret)
    if settings.events:
        with naming(f"--events {settings.events}"):
            os.scandir(settings.events).close()
    return Console(
        cluster,
        Looks(),
        calls,
        accounts,
        Sessions(secret),
        Attempts(),
        Browsers(secret),
        audit,
        history,
        log,
        prefix=settings.prefix,
        trusted=settings.trusted,
        hosts=None if accounts.wanted else settings.hosts,
        timelines=Timelines(settings.events) if settings.events else None,
        trace_url=settings.trace_url,
        bananaq=settings.bananaq.nodes[0] if settings.bananaq else "",
        bananaq_calls=Calls(nursery, Nodes(), settings.bananaq.login) if settings.bananaq else None,
    )


def _config(settings: Settings) -> Config:
    config = _Listening()
    config.bind = [settings.listen]
    config.accesslog = None
    config.errorlog = None  # failing pages are in our own log
    config.graceful_timeout = 3
    config.include_server_header = False
    if settings.certificate:
        config.certfile = settings.certificate
        config.keyfile = settings.key or settings.certificate
        files = " --certificate-key ".join(filter(None, (settings.certificate, settings.key)))
        with naming(f"--certificate {files}"):
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.certfile, config.keyfile)
    return config
