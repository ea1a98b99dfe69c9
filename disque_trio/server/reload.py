"""SIGHUP: which settings of the file that was read again can take effect."""

from collections.abc import Callable

from disque_trio.config import Settings
from disque_trio.config.words import to_bytes
from disque_trio.server.logs import Log


def differences(running: Settings, fresh: Settings) -> tuple[list[tuple[bytes, bytes]], list[str]]:
    """Compare the settings of the process with those that were just loaded.

    Returns the names and values for CONFIG SET, and the names of the settings that differ but
    take effect only at a start.
    """
    settable: list[tuple[bytes, bytes]] = []
    fixed: list[str] = []
    for param in running.stored():
        value = fresh.get(param.name)
        if value == running.get(param.name):
            continue
        if param.settable:
            settable.append((param.name.encode(), to_bytes(param.type.show(value))))
        else:
            fixed.append(param.name)
    return settable, fixed


def take_over(
    fresh: Settings,
    running: Settings,
    config_set: Callable[[list[tuple[bytes, bytes]]], str | None],
    log: Log,
) -> bool:
    """Let what was just loaded hold from now on, as far as it can be SET, and say in the log what
    came of it. ``config_set`` is that of a host. False: a setting was refused, and none holds."""
    settable, fixed = differences(running, fresh)
    problem = config_set(settable) if settable else None
    names = " ".join(name.decode() for name, _ in settable)
    if problem is None:
        log.notice("configuration reloaded", changed=names or "nothing")
    else:
        log.warning("not reloaded", settings=names, reason=problem)
    if fixed:
        log.warning("changed settings that need a restart", settings=" ".join(fixed))
    return problem is None
