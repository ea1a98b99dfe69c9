"""``disque --top`` on a terminal and without one, against real nodes."""

import os
import re
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.support.commands import run_command, start_command
from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory, free_port, wait_until
from tests.support.live_cluster import live_cluster
from tests.support.live_helpers import add_job, client_lines
from tests.support.screen import Screen, screen
from tests.support.tls_front import Certificates

LEAVES = "\x1b[?1049l"
OURS = re.compile(r"\x1b\[(?:\?1049|\?25|\?7)[hl]|\x1b\[(?:\d?m|[HJK]|2J)|\r+\n")


def words(port: int, *arguments: str) -> list[str]:
    return ["-p", str(port), "--top", *arguments]


def top(port: int, *arguments: str, **environment: str) -> AbstractContextManager[Screen]:
    # So wide that the first line never wraps, however long its figures are at the moment.
    return screen(words(port, "-i", "0.2", *arguments), 140, 30, **environment)


def printed(port: int, *arguments: str) -> tuple[int, list[str], str]:
    """Return exit status, lines and errors without a terminal."""
    done = run_command("disque", *words(port, *arguments), text=True)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_queues_of_the_whole_cluster_are_shown_while_a_node_is_away(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 3) as cluster, top(cluster[0].port) as found:
        for node in cluster:
            add_job(node.wire(), "spread", "x", "REPLICATE", 1)
        found.shows("3 nodes up")
        found.shows(lambda text: re.search(r"^ +3 .* spread$", text, re.M) is not None)
        cluster[2].kill()
        found.shows(f"127.0.0.1:{cluster[2].port} unreachable for")
        found.shows("2 nodes up   1 unreachable")
        found.shows(lambda text: re.search(r"^ +2 .* spread$", text, re.M) is not None)
        cluster[2].start()
        found.shows("3 nodes up")
        found.press("q")
        assert found.ends() == 0


def test_keys_work_and_the_terminal_is_left_as_it_was(shared_node: LiveNode) -> None:
    wire = shared_node.wire()
    hostile = ["\x1b[2J\x1b]0;owned\x07", "two\r\nlines", "日本" * 200, "x" * 5_000]
    for name in (*[f"mail.{number:02}" for number in range(50)], "sms", *hostile):
        add_job(wire, name, "x")
    add_job(wire, "sms", "x")
    with top(shared_node.port) as found:
        found.shows("55 queues")
        found.shows(lambda text: "\\x1b[2J\\x1b]0;owned\\x07" in text)
        assert len(found.lines) == 30
        found.press("l")
        found.shows(lambda text: re.search(r"queue *\n +2 .* sms$", text, re.M) is not None)
        found.press("/mail.*9\r")
        found.shows(lambda text: text.count("mail.") == 6)  # one of them is the pattern
        found.press("\x1b")
        found.shows("of 55")
        found.press("n\x1b[F")
        found.shows("29-55 of 55")
        found.press("\x1b[H\x1b[6~")
        found.shows(lambda text: "mail.00" not in text and "28-54 of 55" in text)
        found.press("f")
        found.shows("in hand")
        found.resize(40, 10)
        found.shows(lambda text: len(text.split("\n")) == 10)
        assert max(map(len, found.lines)) <= 40
        assert any(line["name"].startswith("disque-top:") for line in client_lines(wire))
        found.press("\x1a")  # Ctrl-Z
        stat = Path(f"/proc/{found.process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
        assert found.settings() == found.before
        wait_until(lambda: found.output.endswith(LEAVES))
        found.process.send_signal(signal.SIGCONT)
        wait_until(lambda: not found.output.endswith(LEAVES))
        found.press("?")
        found.shows("sort by")
        found.press("qq")
        assert found.ends() == 0
        wait_until(lambda: found.output.endswith(LEAVES))
        assert found.settings() == found.before
        assert all(char.isprintable() for char in OURS.sub("", found.output))


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_it_and_gives_the_terminal_back(
    shared_node: LiveNode, number: signal.Signals, status: int
) -> None:
    with top(shared_node.port) as found:
        found.shows("1 node up")
        if number is signal.SIGINT:
            found.press("\x03")
        else:
            found.process.send_signal(number)
        assert found.ends() == status
        wait_until(lambda: found.output.endswith(LEAVES))
        assert found.settings() == found.before


def test_without_a_terminal_it_is_printed_once_or_as_often_as_wanted(shared_node: LiveNode) -> None:
    add_job(shared_node.wire(), "mail", "x")
    status, lines, complaints = printed(shared_node.port)
    assert (status, complaints) == (0, "")
    assert lines[0].startswith("1 node up   1 queue   1 queued")
    assert re.fullmatch(r" +1( +\d+){3} +\S+ s +never +- mail", lines[-1])
    status, lines, _ = printed(shared_node.port, "-i", "0.1", "-r", "3")
    assert (status, sum("1 node up" in line for line in lines)) == (0, 3)


def test_a_dumb_terminal_gets_plain_output(shared_node: LiveNode) -> None:
    add_job(shared_node.wire(), "mail", "x")
    with screen(words(shared_node.port), TERM="dumb") as found:
        assert found.ends() == 0
        wait_until(lambda: "- mail" in found.output)
        assert "\x1b" not in found.output


@pytest.mark.parametrize("where", ["screen", "dumb terminal", "pipe"])
def test_what_the_locale_has_no_characters_for_is_escaped(
    shared_node: LiveNode, where: str
) -> None:
    add_job(shared_node.wire(), "Û2J日本", "x")
    if where == "pipe":
        environment = {**os.environ, "PYTHONIOENCODING": "iso8859-1"}
        done = run_command("disque", *words(shared_node.port), env=environment, check=True)
        assert done.stdout.endswith(b"\xdb2J\\u65e5\\u672c\n")
    elif where == "screen":
        with top(shared_node.port, LC_ALL="C") as found:
            found.shows("\\xdb2J\\u65e5\\u672c")
            assert found.output.isascii()
    else:
        with screen(words(shared_node.port), TERM="dumb", LC_ALL="C") as found:
            assert found.ends() == 0
            wait_until(lambda: "\\xdb2J\\u65e5\\u672c" in found.output)
            assert found.output.isascii()


def test_a_tiny_window_has_queues(shared_node: LiveNode) -> None:
    add_job(shared_node.wire(), "mail", "x")
    with screen(words(shared_node.port, "-i", "0.2"), columns=20, lines=5) as found:
        found.shows(lambda text: re.search(r"^ +1 mail$", text, re.M) is not None)
        assert found.lines[0].startswith("1 node up")
        assert max(map(len, found.lines)) <= 20


def test_a_reader_that_leaves_and_a_full_disk_end_it(shared_node: LiveNode) -> None:
    options = words(shared_node.port, "-i", "0.1")
    with start_command("disque", *options, stdout=PIPE, stderr=PIPE) as left:
        assert left.stdout is not None
        assert left.stderr is not None
        assert left.stdout.readline().startswith(b"1 node up")
        left.stdout.close()
        assert (left.wait(HANG_SECONDS), left.stderr.read()) == (1, b"")
    with Path("/dev/full").open("wb") as full:
        done = run_command("disque", *words(shared_node.port), stdout=full)
    assert (done.returncode, done.stderr) == (1, b"disque: No space left on device\n")


def test_it_needs_no_standard_input(shared_node: LiveNode) -> None:
    command = [sys.executable, "-m", "disque_trio.cli.main", *words(shared_node.port)]
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    done = subprocess.run(closed, capture_output=True, timeout=HANG_SECONDS, check=True)
    assert (done.stdout[:9], done.stderr) == (b"1 node up", b"")


def test_nodes_are_reached_by_tls(disque_server: NodeFactory, certificates: Certificates) -> None:
    port = free_port()
    options = ["--tls-port", str(port), "--tls-auth-clients", "no"]
    options += ["--tls-cert-file", certificates.cert("good")]
    node = disque_server(*options, "--tls-key-file", certificates.key("good"))
    add_job(node.wire(), "mail", "x")
    status, lines, complaints = printed(port, "--tls", "--cacert", certificates.ca)
    assert (status, complaints) == (0, "")
    assert lines[0].startswith("1 node up   1 queue   1 queued")
    status, lines, complaints = printed(port, "--tls", "--cacert", certificates.key("good"))
    assert (status, lines, len(complaints.splitlines())) == (1, [], 1)
    status, lines, complaints = printed(port, "--tls", "--cacert", certificates.other)
    assert (status, lines) == (1, [])
    assert "certificate" in complaints, complaints
    with top(port, "--tls", "--cacert", certificates.ca) as found:
        found.shows(lambda text: re.search(r"^ +1 .* mail$", text, re.M) is not None)
        node.kill()
        found.shows(f"127.0.0.1:{port} unreachable for")


def test_an_unreachable_or_refusing_node_is_reported(disque_server: NodeFactory) -> None:
    status, lines, complaints = printed(free_port())
    assert (status, lines) == (1, [])
    assert "Connection refused" in complaints
    node = disque_server("--requirepass", "secret")
    status, _, complaints = printed(node.port)
    assert (status, "NOAUTH" in complaints) == (1, True)
    os.environ.pop("DISQUECLI_AUTH", None)
    assert printed(node.port, "--no-auth-warning", "-a", "secret")[0] == 0


def test_missing_rights_are_reported(shared_node: LiveNode) -> None:
    wire = shared_node.wire()
    add_job(wire, "mail", "x")
    rules = ["on", ">p", "allkeys", "-@all", "+hello", "+info", "+cluster|nodes", "+qscan"]
    assert wire("ACL", "SETUSER", "half", "reset", *rules) == b"OK"
    status, lines, _ = printed(shared_node.port, "--no-auth-warning", "--user", "half", "-a", "p")
    assert status == 0
    assert any("refuses: NOPERM" in line for line in lines)
    wire("ACL", "DELUSER", "half")


def test_tasks_that_say_how_far_they_are_are_shown_on_request(shared_node: LiveNode) -> None:
    wire = shared_node.wire()
    queue = f"slow-{os.getpid()}"
    id = add_job(wire, queue, "x", "RETRY", 60)
    assert wire("GETJOB", "FROM", queue)
    assert wire("WORKING", id, "PROGRESS", "0.4", "page 4 of 10") == 60
    with top(shared_node.port) as found:
        found.shows("queued")
        found.press("t")
        found.shows(
            lambda text: re.search(rf" 40% #### *-* +{queue} +page 4 of 10", text) is not None
        )
        assert wire("ACKJOB", id) == 1
        found.shows(lambda text: "page 4 of 10" not in text)
        found.press("q")
        assert found.ends() == 0
