"""The ``disque`` command against a real node."""

import json
import os
import signal
import subprocess

import pytest

from tests.support.commands import run_command, start_command
from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory, wait_until
from tests.support.tls_front import Certificates, tls_front


def run(node: LiveNode, *arguments: str, stdin: str = "", **environment: str) -> tuple[int, str]:
    """Return exit status and stdout of ``disque -p PORT ARGUMENTS``."""
    words = ["-p", str(node.port), *arguments]
    done = run_command("disque", *words, input=stdin, text=True, env=os.environ | environment)
    return done.returncode, done.stdout


def test_a_job_goes_through_its_life_from_the_shell(shared_node: LiveNode) -> None:
    status, id = run(shared_node, "addjob", "q", "hello world", "0")
    assert (status, id[:2]) == (0, "D-")
    assert run(shared_node, "qlen", "q") == (0, "1\n")
    assert run(shared_node, "getjob", "from", "q") == (0, f"q\n{id}hello world\n")
    assert run(shared_node, "ackjob", id.strip()) == (0, "1\n")
    assert run(shared_node, "nope")[0] == 1


def test_jobs_are_printed_for_people(shared_node: LiveNode) -> None:
    _, id = run(shared_node, "addjob", "q", 'a "b"', "0")
    printed = run(shared_node, "--no-raw", "getjob", "withcounters", "from", "q")[1]
    assert printed == (
        f'1) 1) "q"\n   2) "{id.strip()}"\n   3) "a \\"b\\""\n   4) "nacks"\n'
        '   5) (integer) 0\n   6) "additional-deliveries"\n   7) (integer) 0\n'
    )
    assert run(shared_node, "--no-raw", "getjob", "nohang", "from", "q") == (0, "(nil)\n")


@pytest.mark.parametrize("form", [("--no-raw",), ("--raw",), ("--csv",), ("-3", "--no-raw")])
@pytest.mark.parametrize(
    "command",
    ["ping", "config get max*", "command info addjob getjob", "command docs working", "nope",
     "getjob nohang from q", "qpeek q 3", "qstat q", "cluster myid", "client getname"],
)  # fmt: skip
def test_replies_look_as_in_redis_cli(
    shared_node: LiveNode, form: tuple[str, ...], command: str
) -> None:
    words = [*form, *command.split()]
    theirs = subprocess.run(
        ["redis-cli", "-p", str(shared_node.port), *words],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert run(shared_node, *words)[1] == theirs.stdout


def test_texts_are_printed_as_they_are(shared_node: LiveNode) -> None:
    assert "\nregistered_jobs:0" in run(shared_node, "--no-raw", "info", "jobs")[1].replace(
        "\r", ""
    )
    assert run(shared_node, "--no-raw", "client", "list")[1].startswith("id=")


def test_json_can_be_read_by_programs(shared_node: LiveNode) -> None:
    printed = run(shared_node, "--json", "config", "get", "port")[1]
    assert json.loads(printed) == {"port": str(shared_node.port)}


def test_lines_on_stdin_are_commands(shared_node: LiveNode) -> None:
    status, printed = run(shared_node, stdin="3 addjob q x 0\nqlen q\n")
    assert status == 0
    assert printed.splitlines()[-1] == "3"


def test_a_password_opens_the_node(disque_server: NodeFactory) -> None:
    node = disque_server("--requirepass", "secret")
    assert run(node, "qlen", "q")[0] == 1
    assert run(node, "qlen", "q", DISQUECLI_AUTH="secret") == (0, "0\n")
    assert run(node, "-a", "secret", "-3", "qlen", "q") == (0, "0\n")
    assert run(node, "-a", "wrong", "qlen", "q")[0] == 1


def test_shutdown_ends_the_node(disque_server: NodeFactory) -> None:
    node = disque_server()
    assert run(node, "shutdown") == (0, "")
    assert node.process.wait(HANG_SECONDS) == 0


def test_stat_shows_jobs_and_rates(shared_node: LiveNode) -> None:
    run(shared_node, "-r", "5", "addjob", "q", "x", "0")
    status, printed = run(shared_node, "--stat", "-r", "3", "-i", "0.1")
    header, *lines = printed.splitlines()
    assert status == 0
    assert header.split()[0] == "jobs"
    assert len(lines) == 3
    for line in lines:
        assert line.split()[:2] == ["5", "1"]
    assert "-" not in lines[-1].split()


def test_monitor_shows_what_others_do(shared_node: LiveNode) -> None:
    words = ["-p", str(shared_node.port), "monitor"]
    with start_command("disque", *words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "OK\n"
        shared_node.wire()("ADDJOB", "q", "x", 0)
        assert '"ADDJOB" "q" "x" "0"' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG_SECONDS) == 130


def test_an_interrupted_getjob_frees_its_place_at_the_node(shared_node: LiveNode) -> None:
    with start_command("disque", "-p", str(shared_node.port), "getjob", "from", "q") as process:
        wait_until(lambda: shared_node.info("clients")["blocked_clients"] == "1")
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG_SECONDS) == 130
    wait_until(lambda: shared_node.info("clients")["blocked_clients"] == "0")


@pytest.mark.parametrize("way", ["options", "url"])
def test_a_node_is_reached_by_tls(
    session_node: LiveNode, certificates: Certificates, way: str
) -> None:
    with tls_front(certificates.server(), session_node.port) as front:
        url = f"disques://127.0.0.1:{front.port}?ssl_ca_certs={certificates.ca}"
        options = ["-p", str(front.port), "--tls", "--cacert", certificates.ca]
        words = ["-u", url] if way == "url" else options
        # Before each command, a prompt checks whether the node has hung up.
        assert run(session_node, *words, stdin="ping\nping\n") == (0, "PONG\nPONG\n")
        refused = ["-p", str(front.port), "--tls", "--cacert", certificates.other, "ping"]
        assert run(session_node, *refused) == (1, "")


def test_a_restart_waits_for_the_node(disque_server: NodeFactory) -> None:
    node = disque_server("--appendonly", "yes")
    run(node, "addjob", "q", "x", "0")
    before = node.info("server")["run_id"]
    assert run(node, "RESTART") == (0, "")
    assert run(node, "qlen", "q") == (0, "1\n")
    assert node.info("server")["run_id"] != before
