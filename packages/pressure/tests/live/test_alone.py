"""Pressure talks to Redis without another library."""

import subprocess
import sys

import pytest

from packages.pressure.tests.support.pressure_helpers import Spot

HIDDEN = "import sys; sys.modules['coredis'] = None\n"


def python(source: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", HIDDEN + source, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_needs_no_other_library(spot: Spot) -> None:
    place = ["--port", str(spot.port), "--prefix", spot.prefix]
    source = "from disque_pressure.__main__ import main\nsys.exit(main())"
    done = python(source, "create", "q", *place)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = python(source, "length", "q", *place)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


@pytest.mark.parametrize(
    "module",
    [
        "disque_pressure",
        "disque_pressure.queue",
        "disque_pressure.sync",
        "disque_bananaq.redis_store.store",
    ],
)
def test_an_import_needs_no_other_library(module: str) -> None:
    done = python(
        f"import {module}\nprint([name for name in sys.modules if name.split('.')[0] == 'coredis'])"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "['coredis']\n", "")


def test_the_rest_needs_no_other_library() -> None:
    assert python("import disque_trio.client, disque_trio.cli.main").returncode == 0


def test_the_command_is_the_command() -> None:
    command = [sys.executable, "-m", "disque_pressure.__main__", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("pressure ")
