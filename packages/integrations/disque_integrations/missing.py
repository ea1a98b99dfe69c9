"""Says what to install if an extra is missing."""

from pathlib import Path

from disque_trio import extras


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of this distribution for the running Python."""
    return extras.how_to_install(extra, "disque-integrations", Path(__file__).parent)
