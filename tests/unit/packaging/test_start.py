"""A command imports only what it needs: one that only prints something loads neither Trio nor a
library."""

import socket
import subprocess
import sys
import threading
import tomllib

import pytest

from tests.support import ROOT

COMMANDS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "scripts"
]
HEAVY = {
    "asyncio.events",
    "coredis",
    "hiredis",
    "pandas",
    "prompt_toolkit",
    "py4j",
    "pyarrow",
    "pyspark",
    "ssl",
    "structlog",
    "trio",
}
SELDOM = {  # what a server without TLS, metrics, schedules and extras need not import to answer
    "argparse",
    "asyncio",
    "coredis",
    "disque_trio.node.siblings",
    "disque_trio.node.supervisor",
    "email",
    "hashlib",
    "hmac",
    "idna",
    "importlib.metadata",
    "pyspark",
    "shutil",
    "ssl",
    "tempfile",
    "yaml",
    "zipfile",
    "zoneinfo",
}
BARE = set(
    subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
)
RUN = """
import sys
from {module} import {function}
try:
    {function}()
except SystemExit:
    pass
sys.stdout.flush()
print(*sys.modules, file=sys.stderr)
"""


def modules_of(command: str, *arguments: str) -> tuple[str, set[str]]:
    """Return what the command prints, and what it has imported by then."""
    module, _, function = COMMANDS[command].partition(":")
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(module=module, function=function), *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, set(done.stderr.split())


@pytest.mark.parametrize("option", ["--help", "--version"])
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_and_version_import_nothing_heavy(command: str, option: str) -> None:
    printed, modules = modules_of(command, option)
    assert command in printed or "disque-trio" in printed
    assert not modules & HEAVY


def test_a_command_of_the_client_needs_a_socket_and_no_library() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as client:
                client.recv(1000)
                client.sendall(b"+PONG\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        printed, modules = modules_of("disque", "-p", str(listener.getsockname()[1]), "ping")
        thread.join()
    assert printed == "PONG\n"
    assert not (modules - BARE) & (HEAVY | {"inspect", "json", "pathlib", "typing"})


@pytest.mark.parametrize(
    ("module", "needs"),
    [("disque_trio.node.main", set()), ("disque_bananaq.process", {"argparse", "hmac"})],
)
def test_a_server_imports_nothing_that_it_may_never_use(module: str, needs: set[str]) -> None:
    code = f"""
import sys
from disque_trio.process.imports import to_stay
with to_stay():
    import {module}
print(*[name for name, one in sys.modules.items() if type(one).__name__ != "_Waiting"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "trio" in modules
    assert (modules - BARE) & SELDOM == needs
