"""A console whose address cannot be used."""

import os
import socket
import subprocess
import sys

from tests.support import ROOT
from tests.support.harness import HANG_SECONDS, free_port


def refused(listen: str) -> str:
    """What a console says that cannot listen."""
    command = [sys.executable, "-m", "disque_trio.console.command", "--listen", listen]
    command += ["--nodes", f"127.0.0.1:{free_port()}"]
    done = subprocess.run(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=HANG_SECONDS,
        check=False,
    )
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
