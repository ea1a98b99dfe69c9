"""Debian's redis-cli and redis-benchmark talk to a node."""

import re
import shutil
import subprocess

import pytest

from tests.support.harness import LiveNode, NodeFactory, Wire
from tests.support.live_helpers import JOB_ID, add_job, packed

pytestmark = pytest.mark.skipif(
    shutil.which("redis-cli") is None, reason="redis-cli is not installed (Debian: redis-tools)"
)


def cli(node: LiveNode, *arguments: str, text: str | bytes = "") -> str:
    """Return what redis-cli prints; it must succeed."""
    result = subprocess.run(
        ["redis-cli", "-h", node.host, "-p", str(node.port), *arguments],
        input=text.encode() if isinstance(text, str) else text,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert result.returncode == 0, result
    return result.stdout.decode()


@pytest.mark.parametrize("protocol", [[], ["-3"]])
def test_a_job_is_added_taken_and_acknowledged(shared_node: LiveNode, protocol: list[str]) -> None:
    id = cli(shared_node, *protocol, "ADDJOB", "q", "hello", "0").strip()
    assert re.fullmatch(JOB_ID.decode(), id)
    assert cli(shared_node, *protocol, "GETJOB", "FROM", "q").split() == ["q", id, "hello"]
    assert cli(shared_node, *protocol, "ACKJOB", id).strip() == "1"
    assert cli(shared_node, *protocol, "GETJOB", "NOHANG", "FROM", "q").strip() == ""


def test_replies_are_printed_with_their_types(shared_node: LiveNode, talk: Wire) -> None:
    id = add_job(talk)
    printed = cli(shared_node, "--no-raw", "GETJOB", "FROM", "q")
    assert printed == f'1) 1) "q"\n   2) "{id}"\n   3) "body"\n'
    assert cli(shared_node, "--no-raw", "GETJOB", "NOHANG", "FROM", "q") == "(nil)\n"
    assert cli(shared_node, "--no-raw", "QLEN", "q") == "(integer) 0\n"
    assert cli(shared_node, "--no-raw", "QLEN") == (
        "(error) ERR wrong number of arguments for 'qlen' command\n"
    )
    assert cli(shared_node, "-3", "--no-raw", "CONFIG", "GET", "hz") == '1# "hz" => "10"\n'
    assert "(integer) 1\n" in cli(shared_node, "--no-raw", "HELLO")
    assert "# Server" in cli(shared_node, "-3", "INFO")
    assert cli(shared_node, "--json", "HELLO").startswith("[1,")


def test_commands_may_be_piped_in(shared_node: LiveNode) -> None:
    # Without a command, redis-cli shows its prompt, and requests COMMAND DOCS at the start.
    printed = cli(shared_node, text='PING\nADDJOB q "two words" 0\nQPEEK q 1\nNONSENSE\nQLEN q\n')
    assert printed.startswith("PONG\n")
    assert "two words\n" in printed
    assert "ERR unknown command 'NONSENSE'" in printed
    assert printed.endswith("1\n")


def test_help_comes_from_the_node(shared_node: LiveNode) -> None:
    printed = cli(shared_node, text="help ADDJOB\n")
    assert "ADDJOB" in printed
    assert "Add a job to a queue" in printed


def test_an_argument_may_come_from_the_standard_input(shared_node: LiveNode, talk: Wire) -> None:
    cli(shared_node, "-x", "ADDJOB", "q", text=b"0")  # the last argument is the time-out
    assert talk("QLEN", "q") == 0
    body = bytes(range(256))
    cli(shared_node, "-X", "BODY", "ADDJOB", "q", "BODY", "0", text=body)
    jobs = talk("QPEEK", "q", 1)
    assert isinstance(jobs, list)
    assert jobs[0][2] == body


def test_masses_of_jobs_may_be_piped_in(shared_node: LiveNode, talk: Wire) -> None:
    requests = b"".join(packed("ADDJOB", "q", str(number), 0) for number in range(20_000))
    printed = cli(shared_node, "--pipe", text=requests)
    assert "errors: 0, replies: 20000" in printed
    assert talk("QLEN", "q") == 20_000


def test_a_password_may_be_given(disque_server: NodeFactory) -> None:
    node = disque_server("--requirepass", "secret")
    assert "NOAUTH" in cli(node, "PING")
    for options in ("-a secret", "--user default --pass secret", "-3 -a secret"):
        assert cli(node, *options.split(), "PING").strip() == "PONG"
    assert cli(node, "-u", f"redis://default:secret@{node.host}:{node.port}", "PING") == "PONG\n"


def test_the_same_command_may_be_repeated(shared_node: LiveNode) -> None:
    assert cli(shared_node, "-r", "3", "PING") == "PONG\n" * 3


def test_statistics_are_shown_again_and_again(shared_node: LiveNode) -> None:
    with subprocess.Popen(
        ["redis-cli", "-p", str(shared_node.port), "--stat", "-i", "0.005"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            head, _, line = (process.stdout.readline() for _ in range(3))
        finally:
            process.kill()
    assert b"data" in head
    assert line.strip()


def test_latency_is_measured(shared_node: LiveNode) -> None:
    with subprocess.Popen(
        ["redis-cli", "-p", str(shared_node.port), "--latency", "--raw", "-i", "1"],
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.kill()
    assert len(line.split()) == 4


def test_a_monitor_is_followed(shared_node: LiveNode, talk: Wire) -> None:
    with subprocess.Popen(
        ["redis-cli", "-p", str(shared_node.port), "MONITOR"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"OK\n"
            talk("QLEN", "watched")
            assert process.stdout.readline().endswith(b'"QLEN" "watched"\n')
        finally:
            process.kill()


def test_a_unix_socket_is_reached(disque_server: NodeFactory) -> None:
    node = disque_server("--unixsocket", "d.sock")
    path = node.log.parent / "d.sock"
    result = subprocess.run(
        ["redis-cli", "-s", str(path), "PING"], capture_output=True, timeout=30, check=True
    )
    assert result.stdout == b"PONG\n"


@pytest.mark.skipif(shutil.which("redis-benchmark") is None, reason="redis-benchmark is missing")
@pytest.mark.parametrize("pipeline", ["1", "16"])
def test_redis_benchmark_drives_a_node(shared_node: LiveNode, talk: Wire, pipeline: str) -> None:
    result = subprocess.run(
        f"redis-benchmark -p {shared_node.port} -n 3000 -c 20 -P {pipeline} --csv "
        "ADDJOB q body 0".split(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert b"ADDJOB" in result.stdout
    added = talk("QLEN", "q")  # it may send a few more than requested
    assert isinstance(added, int)
    assert 3000 <= added < 4000
