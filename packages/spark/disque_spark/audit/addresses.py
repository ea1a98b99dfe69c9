"""Finds the addresses of nodes, in the ``nodes.conf`` near their event logs."""

from collections.abc import Iterable
from pathlib import Path

from disque_trio.notation.addresses import format_address

_NAME = "nodes.conf"
_UP = 2  # parent directories to look in: the logs are in DIR/events, the file is in DIR
_FIELDS = 3  # id, address, flags


def addresses_near(logs: Iterable[object]) -> dict[str, str]:
    """The addresses of nodes, by id. Empty for logs that are not local files."""
    places = {place for log in logs for place in list(Path(str(log)).parents)[:_UP]}
    found: dict[str, str] = {}
    for place in sorted(places):
        try:
            text = (place / _NAME).read_text("utf-8", "replace")
        except OSError:
            continue
        found |= addresses_in(text)
    return found


def addresses_in(text: str) -> dict[str, str]:
    """The addresses in a ``nodes.conf``, by id. Nodes do not always know their own."""
    lines = (line.split() for line in text.splitlines())
    found = {}
    for fields in lines:
        if len(fields) >= _FIELDS and len(fields[0]) == 40:
            host, _, port = fields[1].partition("@")[0].rpartition(":")
            if port.isdecimal() and int(port):
                found[fields[0]] = format_address(host, int(port))
    return found
