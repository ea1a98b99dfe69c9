"""Fixtures for tests of pages."""

import re
from pathlib import Path

import pytest

from tests.support.documented import Type, Typist, commands, port_digits, until
from tests.support.harness import free_port

STARTS = re.compile(r"^[^{\n]*disque-server.* --port (\d+) .*--daemonize yes.*\n", re.MULTILINE)


@pytest.fixture
def type_in(tmp_path: Path) -> Type:
    """Types the commands below titles of a page, and returns what they print.

    Args:
        page: its name. titles: of sections; or commands, with spaces in front.
    """
    others = {"8711": str(free_port()), "/tmp/disque": str(tmp_path / "disque")}
    others |= {port: port_digits() for port in ("771", "772")}
    others |= {port: str(free_port()) for port in ("9100", "9711")}

    def start(page: str, *titles: str) -> str:
        found = (t if t.startswith(" ") else commands(page, t) for t in titles)
        return Typist(tmp_path, others).type(STARTS.sub(with_wait, "".join(found)))

    return start


def with_wait(start: re.Match[str]) -> str:
    """A command that starts a node; the next one waits until the node responds."""
    return start[0] + until(f"redis-cli -p {start[1]} PING 2>/dev/null | grep -q PONG")
