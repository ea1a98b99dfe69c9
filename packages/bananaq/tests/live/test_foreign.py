"""bananaq with common clients: redis-cli and redis-py."""

import re
import subprocess
import threading
from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from packages.bananaq.tests.support.banana_daemons import STATS, Daemon, Given
from packages.bananaq.tests.support.banana_fixtures import DaemonFactory
from tests.support.harness import HANG_SECONDS, wait_until

pytestmark = pytest.mark.live


def cli(daemon: Daemon, *words: str, text: str | None = None, options: tuple[str, ...] = ()) -> str:
    """Return the output of redis-cli."""
    done = subprocess.run(
        ["redis-cli", "-p", str(daemon.port), "--no-raw", *options, *words],
        input=text,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("options", [(), ("-3",)])
def test_the_examples_of_the_specification_in_redis_cli(
    bananaq: Daemon, queue: str, options: tuple[str, ...]
) -> None:
    foo = queue
    nil = "(nil)\n"
    assert cli(bananaq, "PING", options=options) == "PONG\n"
    out = cli(bananaq, "QADD", foo, "60", "event contents to be consumed", options=options)
    found = re.fullmatch(r'"(\d{16}_\d{16})"\n', out)
    assert found
    id = found[1]
    assert cli(bananaq, "QLPEEK", foo, options=options) == (
        f'1) "{id}"\n2) "event contents to be consumed"\n'
    )
    assert cli(bananaq, "QNOTIFY", "cool-kids", "30", foo, options=options) == f'"{foo}"\n'
    assert cli(bananaq, "QGET", foo, "cool-kids", options=options) == (
        f'1) "{id}"\n2) "event contents to be consumed"\n'
    )
    assert cli(bananaq, "QGET", foo, "cool-kids", options=options) == nil
    assert cli(bananaq, "QNOTIFY", "cool-kids", "0.01", foo, options=options) == nil
    assert cli(bananaq, "QSTATUS", foo, options=options) == (
        f'1) 1) "{foo}"\n'
        '   2) 1) "cool-kids"\n'
        '      2)  1) "total"\n'
        "          2) (integer) 1\n"
        '          3) "inprogress"\n'
        "          4) (integer) 1\n"
        '          5) "redo"\n'
        "          6) (integer) 0\n"
        '          7) "done"\n'
        "          8) (integer) 0\n"
        '          9) "available"\n'
        "         10) (integer) 0\n"
        '         11) "consumers"\n'
        "         12) (integer) 0\n"
    )
    assert cli(bananaq, "QINFO", foo, "GROUPS", "cool-kids", options=options) == (
        f'1) "{foo}  cool-kids  total:1  inprogress:1  redo:0  done:0  available:0  consumers:0"\n'
    )
    assert cli(bananaq, "QACK", foo, "cool-kids", id, options=options) == "(integer) 1\n"
    assert cli(bananaq, "QACK", foo, "cool-kids", id, options=options) == "(integer) 0\n"
    assert cli(bananaq, "QADD", foo, "60", "body", "NOBLOCK", options=options) == "OK\n"
    assert cli(bananaq, "QGET", foo, "cool-kids", "EX", "0", "BLOCK", "5", options=options)
    assert cli(bananaq, "QFLUSH", foo, options=options) == "OK\n"
    assert cli(bananaq, "QSTATUS", foo, "GROUPS", options=options).startswith(f'1) 1) "{foo}"')
    assert cli(bananaq, "QGET", foo, options=options).startswith("(error) ERR wrong number of")
    # Many at once, as typed.
    text = f"QADD {foo} 60 one\nQGET {foo} g EX 0\nQGET {foo} g\n"
    lines = cli(bananaq, text=text, options=options).splitlines()
    assert [line.split('"')[-2] for line in lines[1:3]][1] == "one"
    assert lines[-1] == "(nil)"


def test_redis_cli_shows_help_for_the_commands(bananaq: Daemon) -> None:
    docs = cli(bananaq, "COMMAND", "DOCS", "qget", options=("-3",))
    assert "Take the next event" in docs
    names = cli(bananaq, "COMMAND", "LIST")
    assert {"qadd", "qget", "qack", "qnotify", "qflush", "qstatus", "qinfo"} <= set(
        re.findall(r'"(\w+)"', names)
    )


@pytest.fixture(params=[2, 3])
def client(request: pytest.FixtureRequest, bananaq: Daemon) -> "Iterator[redis.Redis]":
    """redis-py, connected to the shared daemon."""
    with py_client(bananaq, request.param) as client:
        yield client


def py_client(daemon: Daemon, protocol: int = 2, **options: object) -> "redis.Redis":
    return redis.Redis(
        port=daemon.port,
        protocol=protocol,
        socket_timeout=HANG_SECONDS,
        retry=Retry(NoBackoff(), 0),
        **options,  # type: ignore[arg-type]
    )


def test_redis_py_sends_all_commands(client: "redis.Redis", queue: str) -> None:
    run = client.execute_command
    id = run("QADD", queue, 60, b"\x00\xff")
    assert run("QNOTIFY", "g", 1, queue) == queue.encode()
    assert run("QGET", queue, "g", "EX", 30.5) == [id, b"\x00\xff"]
    assert run("QGET", queue, "g") is None
    assert run("QWORKING", queue, "g", id, "EX", 30) == 1
    status = run("QSTATUS", queue, "GROUPS", "g")
    assert status == [
        [queue.encode(), [b"g", [part for n, name in enumerate(STATS)
                                 for part in (name.encode(), int(n < 2))]]]
    ]  # fmt: skip
    assert len(run("QINFO", queue)) == 1
    assert run("QACK", queue, "g", id) == 1
    with pytest.raises(redis.ResponseError, match="invalid ID string"):
        run("QACK", queue, "g", "x")
    assert run("QFLUSH", queue) in (b"OK", True)


def test_redis_py_pipelines(client: "redis.Redis", queue: str) -> None:
    pipe = client.pipeline(transaction=False)
    for n in range(500):
        pipe.execute_command("QADD", queue, 60, n)
    ids = pipe.execute()
    for _ in range(501):
        pipe.execute_command("QGET", queue, "g")
    events = pipe.execute()
    assert events == [[id, b"%d" % n] for n, id in enumerate(ids)] + [None]
    for id in ids:
        pipe.execute_command("QACK", queue, "g", id)
    pipe.execute_command("QACK", queue, "g", "wrong")
    replies = pipe.execute(raise_on_error=False)
    assert replies[:-1] == [1] * 500
    assert isinstance(replies[-1], redis.ResponseError)


def test_redis_py_blocks(client: "redis.Redis", bananaq: Daemon, queue: str) -> None:
    got: list[object] = []

    def wait() -> None:
        got.append(client.execute_command("QNOTIFY", "g", 60, queue))
        got.append(client.execute_command("QGET", queue, "g", "BLOCK", 60))
        got.append(client.execute_command("QGET", queue, "g", "BLOCK", 60))

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: bananaq.status(queue, "g")["consumers"] == 1)
    first = bananaq.ask("QADD", queue, 60, "1")
    wait_until(lambda: len(got) == 2 and bananaq.status(queue, "g")["consumers"] == 1)
    second = bananaq.ask("QADD", queue, 60, "2")
    thread.join(HANG_SECONDS)
    assert got == [queue.encode(), [first, b"1"], [second, b"2"]]


def test_redis_py_s_own_methods(client: "redis.Redis", kind: str, queue: str) -> None:
    assert client.ping() is True
    assert client.echo("x") == b"x"
    info = client.info()
    assert info["bananaq_version"]
    assert info["store"] == kind
    assert info["blocked_clients"] >= 0
    assert client.info("memory")["used_memory"] >= 0
    assert client.config_get("appendonly")
    assert text(client.config_get("maxclients", "o*"))["maxclients"] == "10000"
    commands = client.command()
    assert {"qadd", "qget", "ping"} <= {name.lower() for name in commands}
    assert client.command_count() == len(commands)
    assert client.client_setname("me") is True
    mine = next(row for row in client.client_list() if row["name"] == "me")
    assert int(mine["id"]) == client.client_id()
    assert client.client_getname() in (b"me", "me")
    assert client.client_info()["name"] == "me"
    assert len(client.time()) == 2
    assert isinstance(client.slowlog_get(), list)
    assert isinstance(client.slowlog_len(), int)
    with pytest.raises(redis.ResponseError, match="unknown command"):
        client.get(queue)


def test_redis_py_changes_settings(run_bananaq: DaemonFactory, kind: str) -> None:
    daemon = run_bananaq(kind)
    file = daemon.directory / "own.conf"
    file.write_text("# mine\nokq-expire: 100  # short\n")
    daemon.stop()
    daemon.restart("--config", str(file))
    with py_client(daemon, 3) as client:
        assert text(client.config_get("okq-expire")) == {"okq-expire": "100"}
        assert set(text(client.config_get("okq-*"))) == {"okq-compat", "okq-group", "okq-expire"}
        assert client.config_set("okq-expire", 7) is True
        assert client.config_set("maxclients", 500) is True
        client.execute_command("QLPUSH", "q", "own", "body")
        added, ends = map(int, client.execute_command("QGET", "q", "g")[0].split(b"_"))
        assert abs(ends - added - 7_000_000) < 100_000
        assert client.execute_command("QRPOP", "q") == [b"own", b"body"]
        for name, value in (
            ("okq-expire", "0"),
            ("okq-expire", "soon"),
            ("no-such-parameter", "1"),
            ("okq-group", "others"),
            ("store", "redis" if kind == "embedded" else "embedded"),
        ):
            with pytest.raises(redis.ResponseError):
                client.config_set(name, value)
        assert client.config_rewrite() in (True, b"OK")
        assert client.config_resetstat() is True
    written = file.read_text()
    assert "# mine" in written
    assert "okq-expire: 7  # short" in written
    assert "maxclients: 500" in written
    daemon.stop()
    daemon.restart("--config", str(file))
    with py_client(daemon) as client:
        assert text(client.config_get("maxclients")) == {"maxclients": "500"}


def text(pairs: dict[object, object]) -> dict[str, str]:
    """Convert names and values of settings, in whatever form redis-py returns them."""
    return {
        str(key.decode() if isinstance(key, bytes) else key): str(
            value.decode() if isinstance(value, bytes) else value
        )
        for key, value in pairs.items()
    }


def test_monitor_shows_the_commands_of_others(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("embedded")
    watcher = daemon.wire()
    assert watcher("MONITOR") == b"OK"
    id = daemon.ask("QADD", "q", 60, "a b")
    line = watcher.read()
    assert isinstance(line, bytes)
    assert b'"QADD" "q" "60" "a b"' in line
    assert Given(daemon.ask("QGET", "q", "g")).id == id
