"""The type checkers of users know the types of the clients."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import assert_type

import pytest

from disque_trio.client import Client as AsyncClient
from disque_trio.client import Job, Outcome
from disque_trio.client.sync import Client, HeldJob
from tests.support import ROOT

BIN = Path(sys.executable).parent


def pyright(*arguments: str) -> "subprocess.CompletedProcess[str]":
    program = shutil.which("pyright", path=BIN)
    if program is None:
        pytest.skip("pyright is not installed")
    # It finds packages with the Python in PATH.
    environ = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [program, *arguments], env=environ, capture_output=True, text=True, timeout=120
    )


async def length(client: AsyncClient) -> int:
    return await client.qlen("q")


def inferred(client: Client, job: HeldJob) -> None:
    """Not run: what checkers infer about methods for threads, which are made from asynchronous
    ones."""
    assert_type(client.add("q", b"x", retry=5, headers={"a": "b"}), str)
    assert_type(client.get("q", timeout=1), list[Job])
    assert_type(client.wait("id"), list[Outcome])
    assert_type(client.jscan(queue="q"), Iterator[str])
    assert_type(client.schedules.delete("name"), bool)
    assert_type(client.run(length), int)
    assert_type(next(client.jobs("q")), HeldJob)
    job.ack(result="done")
    client.add("q")  # type: ignore[call-arg]
    client.qlen("q", nosuch=1)  # type: ignore[call-arg]
    client.ack(1)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def fetched() -> None:
    if pyright("--version").returncode:
        pytest.skip("pyright could not fetch itself")


@pytest.mark.usefixtures("fetched")
def test_the_signatures_of_methods_for_threads_are_inferred() -> None:
    done = pyright(__file__)
    assert done.returncode == 0, done.stdout


@pytest.mark.usefixtures("fetched")
@pytest.mark.parametrize("package", ["disque_trio.client", "disque_trio.tasks"])
def test_all_public_types_are_known(package: str) -> None:
    done = pyright("--verifytypes", package, "--ignoreexternal")
    assert done.returncode == 0, done.stdout
    assert "Type completeness score: 100%" in done.stdout
