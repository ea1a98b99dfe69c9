"""The programs of ``examples/`` in other languages, and their requirements."""

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.support import ROOT

EXAMPLES = ROOT / "examples"
# Set by `make test-interop`: then everything installable must be there.
REQUIRED = bool(os.environ.get("DISQUE_INTEROP"))
GO = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode"}  # Debian's Go libraries


def succeeds(*command: str) -> bool:
    """Whether the program exists and succeeds."""
    return shutil.which(command[0]) is not None and (
        subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


@cache
def missing(language: str) -> str:
    """What must be installed for the examples in ``language``, or empty."""
    there: dict[str, tuple[Callable[[], bool], str]] = {
        "node": (
            lambda: shutil.which("node") is not None and (EXAMPLES / "node/node_modules").exists(),
            "node, and npm ci in examples/node",
        ),
        "php": (lambda: succeeds("php", "-r", "new Redis(); pcntl_alarm(0);"), "php-cli php-redis"),
        "ruby": (lambda: succeeds("ruby", "-e", "require 'redis'"), "ruby ruby-redis"),
        "shell": (lambda: shutil.which("redis-cli") is not None, "redis-tools"),
        "c": (
            lambda: shutil.which("cc") is not None and Path("/usr/include/hiredis").exists(),
            "gcc libhiredis-dev",
        ),
        "go": (
            lambda: (
                shutil.which("go") is not None
                and Path(GO["GOPATH"], "src/github.com/gomodule/redigo").exists()
            ),
            "golang-go golang-github-gomodule-redigo-dev",
        ),
    }
    is_there, packages = there[language]
    return "" if is_there() else packages


def need(language: str) -> None:
    """Skip the test if the tools of ``language`` are missing; fail in `make test-interop`."""
    if packages := missing(language):
        (pytest.fail if REQUIRED else pytest.skip)(f"missing: {packages}")


def command_of(example: str, directory: Path) -> list[str]:
    """The command that runs ``example``, a path in ``examples/``; compiles it into ``directory``
    first if necessary."""
    source = str(EXAMPLES / example)
    program = str(directory / "jobs")
    match example.split("/")[0]:
        case "c":
            options = ["-O2", "-Wall", "-Wextra", "-Werror", "-lhiredis", "-lpthread"]
            subprocess.run(["cc", source, "-o", program, *options], check=True)
        case "go":
            environment = {**os.environ, **GO}
            subprocess.run(["go", "build", "-o", program, source], check=True, env=environment)
        case "shell":
            return ["bash", source]
        case interpreter:
            return [interpreter, source]
    return [program]
