"""How a console starts, and what a signal does to it."""

import io
import signal
import socket
from pathlib import Path

import pytest

from disque_console.command import main
from packages.console.tests.support.console import console
from tests.support.commands import run_command
from tests.support.harness import free_port, wait_until


@pytest.mark.parametrize("typed", ["", "\n"])
def test_an_empty_password_is_refused(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.StringIO(typed))
        assert main(["--hash-password"]) == 1
    assert capsys.readouterr() == ("", "disque-console: the password is empty\n")


def refused(listen: str) -> str:
    """What a console says that cannot listen."""
    words = ["--listen", listen, "--nodes", f"127.0.0.1:{free_port()}"]
    done = run_command("disque-console", *words, text=True)
    assert done.returncode == 1
    return done.stderr


def test_an_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        said = refused(address)
    assert said == f"disque-console: --listen {address}: Address already in use\n"


def test_a_socket_in_a_missing_directory_is_named() -> None:
    said = refused("/no/such/socket")
    assert said == "disque-console: --listen /no/such/socket: No such file or directory\n"


def test_a_hangup_begins_the_audit_anew_and_does_not_end_the_console(tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    with console(tmp_path, [free_port()], "--audit-log", str(audit)) as found:
        audit.rename(tmp_path / "audit.log.1")
        found.process.send_signal(signal.SIGHUP)
        wait_until(audit.exists)
        assert found.process.poll() is None
