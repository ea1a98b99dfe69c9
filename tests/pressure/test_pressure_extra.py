"""Without the extra that brings a client of Redis."""

import subprocess
import sys

HIDDEN = "import sys; sys.modules['coredis'] = None\n"
ADVICE = "pip install disque-trio[redis]"


def python(source: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", HIDDEN + source], capture_output=True, text=True, check=False
    )


def test_the_command_says_in_one_line_what_to_install() -> None:
    done = python("from disque_trio.pressure_command import main\nsys.exit(main())")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("pressure: ")
    assert ADVICE in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_import_says_what_to_install() -> None:
    for module in ("disque_trio.pressure", "disque_trio.pressure.sync"):
        source = f"try:\n import {module}\nexcept ImportError as error:\n print(error)"
        assert ADVICE in python(source).stdout


def test_nothing_else_needs_it() -> None:
    assert python("import disque_trio.client, disque_trio.cli.main").returncode == 0


def test_with_the_extra_the_command_is_the_command() -> None:
    command = [sys.executable, "-m", "disque_trio.pressure_command", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("pressure ")
