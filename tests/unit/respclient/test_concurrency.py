"""Which library the clients use, and that the asyncio replacement has what they need of Trio."""

import asyncio
import subprocess
import sys

import pytest
import trio

from disque_trio.client import DisqueError, TooSlowError
from disque_trio.respclient import on_asyncio
from disque_trio.respclient.concurrency import Library, Lowlevel, fail_after, library
from tests.support.harness import HANG_SECONDS
from tests.support.loops import on_both

WITHOUT_ANYIO = """
import asyncio, sys
sys.modules["anyio"] = None
from disque_trio.client import connect

async def main():
    async with connect(["127.0.0.1:1"], retry_for=0):
        pass

try:
    asyncio.run(main())
except ImportError as error:
    print(error)
"""

ON_TRIO = """
import sys, trio
from disque_trio.client import ConnectionLost, connect

async def main():
    try:
        async with connect(["127.0.0.1:1"], retry_for=0):
            pass
    except ConnectionLost:
        print("anyio" in sys.modules)

trio.run(main)
"""


def run(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=HANG_SECONDS
    ).stdout


async def test_under_trio_it_is_trio() -> None:
    assert library() is trio


def test_outside_any_loop_it_is_trio() -> None:
    assert library() is trio


def test_under_asyncio_it_is_the_replacement_also_in_callbacks() -> None:
    async def main() -> None:
        assert library() is on_asyncio
        found: asyncio.Future[Library] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: found.set_result(library()))
        assert await found is on_asyncio

    asyncio.run(main())


async def test_with_trio_as_a_guest_of_asyncio_each_gets_its_own() -> None:
    def main() -> None:
        async def host() -> None:
            loop = asyncio.get_running_loop()
            done: asyncio.Future[object] = loop.create_future()

            async def guest() -> object:
                return library()

            trio.lowlevel.start_guest_run(
                guest,
                run_sync_soon_threadsafe=loop.call_soon_threadsafe,
                done_callback=lambda outcome: done.set_result(outcome.unwrap()),
            )
            assert library() is on_asyncio
            assert await done is trio
            assert library() is on_asyncio

        asyncio.run(host())

    await trio.to_thread.run_sync(main)


@pytest.mark.parametrize("stand_in", [trio, on_asyncio])
def test_both_have_all_that_clients_need(stand_in: Library) -> None:
    names = {name for name in vars(Library) if not name.startswith("_")}
    assert names == {name for name in names if hasattr(stand_in, name)}
    names = {name for name in vars(Lowlevel) if not name.startswith("_")}
    assert names == {name for name in names if hasattr(stand_in.lowlevel, name)}


@on_both
async def test_a_timeout_raises_an_error_that_programs_of_either_library_catch() -> None:
    with pytest.raises(TooSlowError) as caught, fail_after(0.01):
        await library().sleep_forever()
    assert isinstance(caught.value, trio.TooSlowError)
    assert isinstance(caught.value, TimeoutError)
    assert not isinstance(caught.value, DisqueError)


def test_without_the_extra_a_program_on_asyncio_gets_an_error() -> None:
    said = run(WITHOUT_ANYIO)
    assert "anyio" in said
    assert "pip install" in said


def test_a_program_on_trio_needs_no_anyio() -> None:
    assert run(ON_TRIO) == "False\n"


def test_a_token_of_an_ended_loop_raises() -> None:
    async def main() -> object:
        return library().lowlevel.current_trio_token()

    token = asyncio.run(main())
    with pytest.raises(trio.RunFinishedError):
        token.run_sync_soon(lambda: None)  # type: ignore[attr-defined]
