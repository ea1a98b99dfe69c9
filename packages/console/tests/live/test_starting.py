"""A console whose address cannot be used."""

import io
import socket

import pytest

from disque_console.command import main
from tests.support.commands import run_command
from tests.support.harness import free_port


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
