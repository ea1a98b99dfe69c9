"""SIGHUP: reads the settings again, and applies those that can change at runtime."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from disque_trio.config import ConfigError, Settings
from disque_trio.config.words import to_bytes
from disque_trio.process.logs import Log
from disque_trio.process.tls import TlsError

S = TypeVar("S", bound=Settings)


class Certificates(Protocol):
    """Interface of a daemon with certificates."""

    def read_certificates(self, settings: Any) -> Callable[[], None]:
        """See ``Daemon``."""


def differences(running: Settings, fresh: Settings) -> tuple[list[tuple[bytes, bytes]], list[str]]:
    """Compare the settings of the process with those that were just loaded.

    Returns the names and values for CONFIG SET, and the names of settings that differ but only take
    effect at a start.
    """
    settable: list[tuple[bytes, bytes]] = []
    fixed: list[str] = []
    for param in running.stored():
        value = fresh.get(param.name)
        if value == running.get(param.name) or param.type.whole:
            continue
        if param.settable:
            settable.append((param.name.encode(), to_bytes(param.type.show(value))))
        else:
            fixed.append(param.name)
    return settable, fixed


def reload(
    load: Callable[[], S],
    running: S,
    config_set: Callable[[list[tuple[bytes, bytes]]], str | None],
    log: Log,
    daemon: Certificates,
) -> S | None:
    """Apply the settings that ``load`` reads, as far as they can be SET, and log the result.
    ``config_set``: that of a host. The certificates of ``daemon`` are read again even if no setting
    has changed. Return the settings; None: they, or the certificates, are wrong, or one was
    refused, so none has been applied."""
    try:
        fresh = load()
        settable, fixed = differences(running, fresh)
        changed = {name.decode(): fresh.get(name.decode()) for name, _ in settable}
        use_certificates = daemon.read_certificates(running.with_values(changed))
    except (ConfigError, TlsError, OSError) as wrong:
        log.warning("not reloaded, the configuration is wrong", reason=str(wrong))
        return None
    problem = config_set(settable) if settable else None
    names = " ".join(name.decode() for name, _ in settable)
    if problem is None:
        use_certificates()
        log.notice("configuration reloaded", changed=names or "nothing")
    else:
        log.warning("not reloaded", settings=names, reason=problem)
    if fixed:
        log.warning("changed settings that need a restart", settings=" ".join(fixed))
    return fresh if problem is None else None
