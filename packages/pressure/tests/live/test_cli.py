"""The command ``pressure``, in real processes and pipelines."""

import json
import os
import pty
import resource
import shlex
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from disque_pressure.arguments import parse
from disque_pressure.streams import waited_for
from packages.pressure.tests.support.pressure_helpers import Spot
from packages.pressure.tests.support.pressure_processes import (
    COMMAND,
    Redis,
    Running,
    create,
    pressure,
    wait_for_length,
)
from tests.support.commands import run_command, start_command
from tests.support.harness import HANG_SECONDS, Wire, wait_until
from tests.support.redis_server import RedisServer, hung

Start = Callable[..., Running]


@pytest.fixture
def server(spot: Spot) -> Iterator[Redis]:
    wire = Wire(socket.create_connection(("127.0.0.1", spot.port)))
    yield Redis(spot.port, spot.prefix, wire)
    wire.close()


@pytest.fixture
def start(server: Redis) -> Iterator[Start]:
    started: list[Running] = []

    def begin(*arguments: str) -> Running:
        started.append(Running(server, *arguments))
        return started[-1]

    yield begin
    for running in started:
        running.close()


def shell(server: Redis, line: str) -> str:
    """Run a shell command line, and return its output."""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line.replace("pressure", shlex.join(COMMAND))],
        capture_output=True,
        env=server.environment,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


# Pipelines


def test_numbers_go_through_a_pipeline(server: Redis) -> None:
    shell(server, "seq 10 | pressure put q --create --close")
    assert shell(server, "pressure get q | wc -l").strip() == "10"


def test_a_bounded_queue_blocks_a_pipeline_until_somebody_reads(server: Redis) -> None:
    line = "seq 2000 | pressure put q --create --bound 7 --close & sleep 0; wait"
    put = subprocess.Popen(
        ["bash", "-c", line.replace("pressure", shlex.join(COMMAND))], env=server.environment
    )
    wait_for_length(server, "q", 7)
    assert put.poll() is None
    output = shell(server, "pressure get q")
    assert output.split() == [str(number) for number in range(1, 2001)]
    assert put.wait(HANG_SECONDS) == 0


def test_any_bytes_go_through_in_blocks(server: Redis) -> None:
    create(server, "q")
    data = os.urandom(100_001)
    assert pressure(server, "put", "q", "--block", "1kb", "--close", data=data)[0] == 0
    assert server.ask("LLEN", server.key("q")) == 98
    assert pressure(server, "get", "q", "--block") == (0, data, "")


def test_elements_that_end_with_nul_may_contain_line_ends(server: Redis) -> None:
    create(server, "q")
    pressure(server, "put", "q", "--null", data=b"a\nb\0c\0")
    assert server.elements("q") == [b"a\nb", b"c"]
    assert pressure(server, "get", "q", "-0", "--no-wait")[1] == b"a\nb\0c\0"


def test_two_puts_share_a_queue_line_by_line(server: Redis, start: Start) -> None:
    create(server, "q", 5)
    puts = [start("put", "q") for _ in range(2)]
    for name, put in zip("ab", puts, strict=True):
        put.send("".join(f"{name}{n}\n" for n in range(300)).encode())
    status, output, _ = pressure(server, "get", "q", "-n", "600")
    assert status == 0
    lines = output.split()
    for name in (b"a", b"b"):
        mine = [line for line in lines if line.startswith(name)]
        assert mine == [b"%b%d" % (name, n) for n in range(300)]
    assert [put.end()[0] for put in puts] == [0, 0]


def test_put_that_holds_the_role_excludes_others(server: Redis, start: Start) -> None:
    create(server, "q")
    put = start("put", "q", "--hold", "--close")
    put.send(b"1\n")
    wait_for_length(server, "q", 1)
    status, _, error = pressure(server, "put", "q", "--timeout", "0.1", data=b"x\n")
    assert (status, "is using queue 'q'" in error) == (1, True)
    put.send(b"2\n")
    assert put.end() == (0, b"", b"")
    assert server.elements("q") == [b"1", b"2"]
    assert server.ask("LLEN", server.key("q", ":closed")) == 2


# Get


def test_get_takes_the_requested_number(server: Redis) -> None:
    create(server, "q")
    pressure(server, "put", "q", data=b"1\n2\n3\n")
    assert pressure(server, "get", "q", "-n", "2") == (0, b"1\n2\n", "")
    assert server.elements("q") == [b"3"]
    assert server.ask("GET", server.key("q", ":stats:consumed_messages")) == b"2"


def test_a_waiting_get_ends_when_the_queue_is_closed(server: Redis, start: Start) -> None:
    create(server, "q")
    get = start("get", "q")
    pressure(server, "put", "q", data=b"1\n")
    assert get.line() == b"1\n"
    assert get.running
    assert pressure(server, "close", "q") == (0, b"", "")
    assert get.end() == (0, b"", b"")
    assert server.free("q", "consumer")


def test_a_waiting_get_fails_when_the_queue_is_deleted(server: Redis, start: Start) -> None:
    create(server, "q")
    get = start("get", "q")
    wait_until(lambda: not server.free("q", "consumer"))
    assert pressure(server, "delete", "q") == (0, b"", "")
    status, _, errors = get.end()
    assert (status, errors) == (1, b"pressure: queue 'q' does not exist\n")
    assert server.keys() == []


def test_get_without_waiting_ends_when_the_queue_is_empty(server: Redis) -> None:
    create(server, "q")
    assert pressure(server, "get", "q", "--no-wait") == (0, b"", "")
    status, _, error = pressure(server, "get", "q", "--timeout", "0.05")
    assert (status, error) == (1, "pressure: queue 'q' is empty\n")


# Signals and broken pipes


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_a_waiting_get_and_releases_the_role(
    server: Redis, start: Start, number: int, status: int
) -> None:
    create(server, "q")
    get = start("get", "q")
    wait_until(lambda: not server.free("q", "consumer"))
    assert get.stop(number) == status
    assert server.free("q", "consumer")


def test_a_signal_ends_a_put_that_waits_for_space_and_releases_the_role(
    server: Redis, start: Start
) -> None:
    create(server, "q", 1)
    put = start("put", "q")
    put.send(b"1\n2\n")
    wait_for_length(server, "q", 1)
    wait_until(lambda: not server.free("q", "producer"))
    assert put.stop(signal.SIGINT) == 130
    assert server.free("q", "producer")
    assert server.elements("q") == [b"1"]


def test_a_signal_ends_a_put_that_waits_for_input(server: Redis, start: Start) -> None:
    create(server, "q")
    put = start("put", "q", "--hold")
    wait_until(lambda: not server.free("q", "producer"))
    assert put.stop(signal.SIGTERM) == 143
    assert server.free("q", "producer")


def test_a_get_whose_output_nobody_reads_ends_and_leaves_the_rest(
    server: Redis, start: Start
) -> None:
    create(server, "q")
    get = start("get", "q")
    server.ask("LPUSH", server.key("q"), "1")
    assert get.line() == b"1\n"
    wait_for_length(server, "q", 0)
    assert get.process.stdout is not None
    get.process.stdout.close()
    # It waits without anything to write.
    assert get.process.wait(HANG_SECONDS) == 141
    assert server.free("q", "consumer")


def test_elements_that_could_not_be_written_stay_in_the_queue(server: Redis, start: Start) -> None:
    create(server, "q")
    lines = [b"x" * 30_000 + b"%d" % n for n in range(200)]
    pressure(server, "put", "q", data=b"\n".join(lines))
    get = start("get", "q")
    assert get.line() == lines[0] + b"\n"
    assert get.process.stdout is not None
    get.process.stdout.close()
    assert get.process.wait(HANG_SECONDS) == 141
    left = server.elements("q")
    assert isinstance(left, list)
    assert 0 < len(left) < 200 or left == lines
    assert left == lines[-len(left) :]
    assert server.free("q", "consumer")


# Errors


def failing(server: Redis, *arguments: str, data: bytes = b"x\n") -> str:
    status, output, error = pressure(server, *arguments, data=data)
    assert status == 1
    assert output == b""
    assert error.startswith("pressure: ")
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize("command", ["put", "get", "tail", "length", "stats", "close", "delete"])
def test_a_queue_that_does_not_exist_is_named(server: Redis, command: str) -> None:
    assert "queue 'nosuch' does not exist" in failing(server, command, "nosuch")
    assert server.keys() == []


def test_a_closed_full_or_used_queue_is_reported(server: Redis) -> None:
    create(server, "q", 1)
    assert "already exists" in failing(server, "create", "q")
    assert "is full" in failing(server, "put", "q", "--timeout", "0.05", data=b"1\n2\n")
    server.take_as_foreigner("q", "consumer", "them")
    assert "consumer 'them' is using queue 'q'" in failing(server, "get", "q", "--timeout", "0.05")
    pressure(server, "close", "q")
    assert "queue 'q' is closed" in failing(server, "put", "q")
    assert "queue 'q' is closed" in failing(server, "close", "q")
    assert server.free("q", "producer")


def test_an_unreachable_redis_is_an_error(server: Redis) -> None:
    # Nothing listens on port 1.
    assert "queue 'q'" in failing(server, "length", "q", "--port", "1")
    assert "127.0.0.1:1" in failing(server, "--port", "1", "list")


def test_a_key_of_another_type_is_reported_and_left_alone(server: Redis) -> None:
    server.ask("SET", server.key("q"), "mine")
    server.ask("SET", server.key("q", ":bound"), 0)
    error = failing(server, "put", "q")
    assert repr(server.key("q")) in error
    assert server.ask("GET", server.key("q")) == b"mine"


@pytest.mark.parametrize("command", ["get", "length"])
def test_output_that_cannot_be_written_is_an_error(server: Redis, command: str) -> None:
    create(server, "q")
    server.ask("LPUSH", server.key("q"), "1")
    with Path("/dev/full").open("wb") as full:
        done = run_command("pressure", command, "q", stdout=full, env=server.environment)
    assert done.returncode == 1
    assert done.stderr.startswith(b"pressure: queue 'q': ")
    assert done.stderr.count(b"\n") == 1
    assert server.elements("q") == [b"1"]


def test_elements_that_fit_on_a_full_disk_are_taken_and_the_rest_stays(
    server: Redis, tmp_path: Path
) -> None:
    create(server, "q")
    lines = [b"%04d" % n + b"x" * 995 for n in range(100)]
    pressure(server, "put", "q", data=b"\n".join(lines))
    output = tmp_path / "out"
    with output.open("wb") as file:
        done = subprocess.run(
            [*COMMAND, "get", "q", "--no-wait"],
            stdout=file,
            stderr=subprocess.PIPE,
            env=server.environment,
            check=False,
            # Python ignores the signal, so a write past the limit is an error.
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40_500, 40_500)),
        )
    assert done.returncode == 1
    assert output.read_bytes()[:40_000] == b"".join(line + b"\n" for line in lines[:40])
    assert server.elements("q") == lines[40:]
    assert server.free("q", "consumer")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "put",
        "put q --block 0",
        "create q --bound " + "9" * 5000,
        "put q --null --block 5",
        "put q --bound 5",
        "create q --bound -1",
        "get q -n 0",
        "get q --timeout -1",
        "length q --port 70000",
        "doctor q --free both",
        "doctor q --held-by me",
        "pipe --from-disque a",
        "pipe --from-disque a --to-disque b",
        "pipe --from-disque a --to-pressure b --to-disque c",
        "pipe --from-pressure a --to-disque b --close",
    ],
)
def test_a_wrong_command_line_ends_with_status_2(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(line.split())
    assert ended.value.code == 2
    [said] = capsys.readouterr().err.splitlines()
    assert said.endswith("--help)")


def test_options_may_be_before_or_after_the_command() -> None:
    before = parse(["--port", "1", "--prefix", "p", "-q", "length", "q"])
    behind = parse(["length", "q", "--port", "1", "--prefix", "p", "-q"])
    assert vars(before) == vars(behind)


def test_the_environment_sets_server_and_prefix(server: Redis) -> None:
    environment = {
        **server.environment,
        "REDIS_SERVER": "localhost",
        "REDIS_DB": "3",
        "PRESSURE_PREFIX": f"{server.prefix}mine",
    }
    run_command("pressure", "create", "q", env=environment, check=True)
    server.ask("SELECT", 3)
    assert server.ask("EXISTS", f"{server.prefix}mine:q:bound") == 1
    run_command("pressure", "delete", "q", env=environment, check=True)
    wrong = run_command("pressure", "length", "q", env={**environment, "REDIS_PORT": "x"})
    assert wrong.returncode == 2
    assert b"REDIS_PORT" in wrong.stderr


@pytest.fixture
def own_server(own_redis: RedisServer) -> Iterator[Redis]:
    """A Redis that the test has for itself."""
    wire = Wire(socket.create_connection(("127.0.0.1", own_redis.port)))
    yield Redis(own_redis.port, "p", wire)
    wire.close()


def test_a_password_comes_from_the_environment(
    own_server: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server
    create(server, "q")
    server.wire("CONFIG", "SET", "requirepass", "secret")
    assert "queue 'q'" in failing(server, "length", "q")
    monkeypatch.setenv("REDISCLI_AUTH", "wrong")
    failing(server, "list")
    monkeypatch.setenv("REDISCLI_AUTH", "secret")
    assert pressure(server, "put", "q", data=b"1\n") == (0, b"", "")
    assert pressure(server, "length", "q") == (0, b"1\n", "")
    assert pressure(server, "list") == (0, b"q\t1\t-\topen\n", "")


# Inspecting


def test_stats_length_and_list_show_the_numbers(server: Redis) -> None:
    create(server, "b", 5)
    create(server, "a")
    pressure(server, "put", "b", "--close", data=b"1\n23\n")
    assert pressure(server, "length", "b") == (0, b"2\n", "")
    stats = json.loads(pressure(server, "stats", "b", "--json")[1])
    assert stats["name"] == "b"
    assert (stats["bound"], stats["produced_messages"], stats["produced_bytes"]) == (5, 2, 3)
    assert b"produced_messages: 2\n" in pressure(server, "stats", "b")[1]
    assert pressure(server, "list") == (0, b"a\t0\t-\topen\nb\t2\t5\tclosed\n", "")
    listed = pressure(server, "list", "--json")[1].splitlines()
    assert json.loads(listed[1]) == {"name": "b", "length": 2, "bound": 5, "closed": True}


def test_a_list_takes_the_prefix_literally(server: Redis) -> None:
    for prefix in ("a*", "ab", "a[b]"):
        pressure(server, "create", "q", "--prefix", f"{server.prefix}:{prefix}")
    for prefix in ("a*", "a[b]"):
        listed = pressure(server, "list", "--prefix", f"{server.prefix}:{prefix}")
        assert listed[1] == b"q\t0\t-\topen\n"


def test_tail_shows_the_newest_and_takes_nothing(server: Redis) -> None:
    create(server, "q")
    pressure(server, "put", "q", data=b"1\n2\n3\n")
    assert pressure(server, "tail", "q", "-n", "2") == (0, b"2\n3\n", "")
    assert server.elements("q") == [b"1", b"2", b"3"]


def test_tail_follows_until_the_queue_is_closed(server: Redis, start: Start) -> None:
    create(server, "q")
    server.ask("LPUSH", server.key("q"), "0")
    tail = start("tail", "q", "-f")
    assert tail.line() == b"0\n"
    pressure(server, "put", "q", data=b"1\n2\n")
    assert [tail.line(), tail.line()] == [b"1\n", b"2\n"]
    pressure(server, "put", "q", "--close", data=b"3\n")
    assert tail.end() == (0, b"3\n", b"")


def test_a_terminal_shows_the_progress(server: Redis) -> None:
    create(server, "q")
    inside, outside = pty.openpty()
    streams = {"stdin": subprocess.PIPE, "stderr": outside}
    put = start_command("pressure", "put", "q", **streams, env=server.environment)
    os.close(outside)
    try:
        assert put.stdin is not None
        put.stdin.write(b"1\n2\n")
        put.stdin.close()
        seen = b""
        while b"\n" not in seen:
            seen += os.read(inside, 1000)
        assert put.wait(HANG_SECONDS) == 0
    finally:
        os.close(inside)
    assert b"2 elements in " in seen


def test_a_terminal_shows_what_a_put_waits_for(server: Redis) -> None:
    create(server, "q", 1)
    inside, outside = pty.openpty()
    streams = {"stdin": subprocess.PIPE, "stderr": outside}
    put = start_command("pressure", "put", "q", **streams, env=server.environment)
    os.close(outside)
    try:
        assert put.stdin is not None
        put.stdin.write(b"1\n2\n")
        put.stdin.flush()
        seen = b""
        while b"1 elements, 0/s, waiting for room (1 of 1)" not in seen:
            seen += os.read(inside, 1000)
        put.send_signal(signal.SIGINT)
        assert put.wait(HANG_SECONDS) == 130
        put.stdin.close()
    finally:
        put.kill()
        os.close(inside)


async def test_a_put_shows_the_producer_it_waits_for(spot: Spot) -> None:
    async with spot.queue(uid="other") as q:
        await q.create(1)
        assert await waited_for(q, "me") == ""
        async with q.producer():
            assert await waited_for(q, "me") == "waiting for the producer 'other'"
            assert await waited_for(q, "other") == ""
        await q.delete()
        assert await waited_for(q, "me") == ""


@pytest.mark.parametrize("command", ["get q --no-wait", "length q", "tail q"])
def test_without_a_standard_output_nothing_is_taken(server: Redis, command: str) -> None:
    create(server, "q")
    server.ask("LPUSH", server.key("q"), "1")
    line = f"{shlex.join(COMMAND)} {command} >&-"
    done = subprocess.run(
        ["bash", "-c", line], env=server.environment, stderr=subprocess.PIPE, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(b"pressure: queue 'q': ")
    assert done.stderr.count(b"\n") == 1
    assert server.elements("q") == [b"1"]


def test_without_a_standard_input_nothing_is_put(server: Redis) -> None:
    create(server, "q")
    line = f"{shlex.join(COMMAND)} put q --close <&-"
    done = subprocess.run(
        ["bash", "-c", line], env=server.environment, stderr=subprocess.PIPE, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(b"pressure: queue 'q': ")
    assert server.ask("EXISTS", server.key("q", ":closed")) == 0
    assert server.free("q", "producer")


def test_a_redis_that_does_not_reply_is_an_error(
    own_redis: RedisServer, own_server: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hung(own_redis), monkeypatch.context() as patch:
        patch.setattr("disque_trio.redis.connection.REPLY_SECONDS", 0.3)
        assert "does not answer" in failing(own_server, "length", "q")
        assert "does not answer" in failing(own_server, "list")
    assert "does not exist" in failing(own_server, "length", "q")
