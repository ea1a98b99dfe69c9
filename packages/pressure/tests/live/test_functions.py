"""The Lua code runs as functions if the server supports them, otherwise as scripts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from disque_pressure import PressureQueue, ServerRefusedError, WrongTypeError
from packages.pressure.tests.support.pressure_helpers import Spot
from tests.support.redis_server import RedisServer, plain_client, server_version

pytestmark = pytest.mark.skipif(server_version() < (7,), reason="this Redis has no functions")


def calls(raw: "redis.Redis", name: str) -> int:
    """Return how often a command was called and not refused."""
    found = raw.info("commandstats").get(f"cmdstat_{name}", {"calls": 0, "failed_calls": 0})
    count: int = found["calls"] - found["failed_calls"]
    return count


@pytest.fixture(params=["functions", "without", "not allowed to load", "not allowed to call"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Spot]:
    """A Redis with or without functions."""
    options: list[str] = []
    if request.param == "without":
        options = ["--rename-command", "FCALL", "", "--rename-command", "FUNCTION", ""]
    redis_server = RedisServer(tmp_path, *options)
    redis_server.start()
    with plain_client(redis_server.port) as raw:
        if request.param.startswith("not allowed"):
            command = "function" if request.param.endswith("load") else "fcall"
            raw.execute_command("ACL", "SETUSER", "default", f"-{command}")
        yield Spot(redis_server.port, "p", "q", raw)
    redis_server.stop()


async def test_all_operations_work(server: Spot, request: pytest.FixtureRequest) -> None:
    functions = request.node.callspec.params["server"] == "functions"
    async with server.queue() as q:
        await q.create(2)
        await q.put(b"a")
        await q.put_many([b"b"])
        assert (await q.stats()).length == 2
        assert await q.get() == b"a"
        assert await q.get_many(5) == [b"b"]
        await q.close()
        await q.delete()
    assert server.keys() == set()
    assert (calls(server.raw, "fcall") > 0) == functions
    assert (calls(server.raw, "evalsha") > 0) == (not functions)


async def test_lost_functions_are_loaded_again(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create()
        await q.put(b"a")
        spot.raw.execute_command("FUNCTION", "FLUSH")
        await q.put(b"b")
        assert await q.get() == b"a"
        assert await q.get() == b"b"


async def test_a_full_redis_refuses_puts_but_not_gets(tmp_path: Path) -> None:
    redis_server = RedisServer(tmp_path)
    redis_server.start()
    try:
        with plain_client(redis_server.port) as raw:
            async with PressureQueue("q", server="127.0.0.1", port=redis_server.port) as q:
                await q.create()
                await q.put(b"a")
                raw.config_set("maxmemory", "1")
                with pytest.raises(ServerRefusedError):
                    await q.put(b"b")
                assert await q.get() == b"a"
                await q.close()
                await q.delete()
    finally:
        redis_server.stop()


async def test_a_key_of_a_wrong_type_is_reported(spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create()
        spot.raw.set(spot.data, "text")
        with pytest.raises(WrongTypeError):
            await q.put(b"a")
        assert spot.raw.get(spot.data) == b"text"
