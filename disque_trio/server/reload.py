"""SIGHUP: which settings of the file that was read again can take effect."""

from disque_trio.config import Settings
from disque_trio.config.words import to_bytes


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
