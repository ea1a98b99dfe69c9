"""The command as a process: one command, lines on stdin, repetition, failures."""

import os
import signal
import socket
from pathlib import Path
from subprocess import PIPE

from tests.support.commands import run_command, start_command
from tests.support.harness import HANG_SECONDS
from tests.support.scripted_server import HANG_UP, scripted_server


def run(*arguments: str, stdin: bytes = b"", **environment: str) -> tuple[int, bytes, str]:
    """Return exit status, stdout and stderr of ``disque ARGUMENTS``."""
    done = run_command("disque", *arguments, input=stdin, env=os.environ | environment)
    return done.returncode, done.stdout, done.stderr.decode()


def test_a_command_is_sent_and_its_reply_printed_raw() -> None:
    with scripted_server(lambda _: b"*2\r\n$1\r\na\r\n:1\r\n") as server:
        assert run("-p", server.port, "getjob", "from", "q") == (0, b"a\n1\n", "")
        assert server.seen == [[b"getjob", b"from", b"q"]]


def test_no_raw_prints_for_people() -> None:
    with scripted_server(lambda _: b"*2\r\n$1\r\na\r\n:1\r\n") as server:
        status, printed, _ = run("-p", server.port, "--no-raw", "x")
        assert (status, printed) == (0, b'1) "a"\n2) (integer) 1\n')


def test_an_error_reply_makes_the_exit_status_1() -> None:
    with scripted_server(lambda _: b"-ERR no\r\n") as server:
        assert run("-p", server.port, "x") == (1, b"ERR no\n\n", "")
        assert run("-p", server.port, "--no-raw", "x") == (1, b"(error) ERR no\n", "")


def test_a_full_disk_is_told() -> None:
    with scripted_server(lambda _: b"+PONG\r\n") as server, Path("/dev/full").open("wb") as full:
        done = run_command("disque", "-p", server.port, "ping", stdout=full)
    assert (done.returncode, done.stderr) == (1, b"disque: No space left on device\n")


def test_a_node_that_is_down_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        status, printed, complaint = run("-p", str(port), "ping")
    assert (status, printed) == (1, b"")
    assert complaint == f"Could not connect to Disque at 127.0.0.1:{port}: Connection refused\n"


def test_a_missing_unix_socket_is_named() -> None:
    status, _, complaint = run("-s", "/nonexistent.sock", "ping")
    assert status == 1
    assert "Could not connect to Disque at /nonexistent.sock: No such file" in complaint


def test_a_node_that_hangs_up_is_reported() -> None:
    with scripted_server(lambda _: HANG_UP) as server:
        status, _, complaint = run("-p", server.port, "ping")
        assert (status, complaint) == (1, "Error: Server closed the connection\n")


def test_shutdown_is_answered_by_silence() -> None:
    with scripted_server(lambda _: HANG_UP) as server:
        assert run("-p", server.port, "SHUTDOWN") == (0, b"", "")


def test_the_last_argument_can_come_from_stdin() -> None:
    with scripted_server(lambda _: b"+OK\r\n") as server:
        run("-p", server.port, "-x", "echo", stdin=b"a\0b\n")
        assert server.seen == [[b"echo", b"a\0b\n"]]


def test_a_command_is_repeated() -> None:
    with scripted_server(lambda _: b":1\r\n") as server:
        assert run("-p", server.port, "-r", "3", "-i", "0.01", "x") == (0, b"1\n1\n1\n", "")


def test_the_password_is_sent_and_on_the_command_line_warned_of() -> None:
    with scripted_server(lambda _: b"+OK\r\n") as server:
        assert run("-p", server.port, "ping", DISQUECLI_AUTH="env") == (0, b"OK\n", "")
        _, _, complaint = run("-p", server.port, "-a", "arg", "ping")
        assert complaint.startswith("Warning: Using a password")
        assert run("-p", server.port, "-a", "arg", "--no-auth-warning", "ping")[2] == ""
        sent = [command[1] for command in server.seen if command[0] == b"AUTH"]
        assert sent == [b"env", b"arg", b"arg"]


def test_a_refused_password_is_reported() -> None:
    def answer(command: list[bytes]) -> bytes:
        return b"-ERR invalid password\r\n" if command[0] == b"AUTH" else b"-NOAUTH x\r\n"

    with scripted_server(answer) as server:
        status, printed, complaint = run("-p", server.port, "ping", DISQUECLI_AUTH="x")
        assert (status, printed) == (1, b"NOAUTH x\n\n")
        assert complaint == "AUTH failed: ERR invalid password\n"


def test_resp3_is_asked_for_and_printed() -> None:
    def answer(command: list[bytes]) -> bytes:
        return b"%1\r\n$1\r\nk\r\n#t\r\n"

    with scripted_server(answer) as server:
        assert run("-p", server.port, "-3", "--no-raw", "x")[1] == b'1# "k" => (true)\n'
        assert server.seen[0] == [b"HELLO", b"3"]
        assert run("-p", server.port, "--json", "x")[1] == b'{"k":true}\n'


def test_lines_on_stdin_are_run_until_quit() -> None:
    def echo(command: list[bytes]) -> bytes:
        return b"$%d\r\n%s\r\n" % (len(command[-1]), command[-1])

    with scripted_server(echo) as server:
        lines = b'echo "a b"\n\n2 echo \'x\'\necho "unbalanced\nquit\necho never\n'
        status, printed, _ = run("-p", server.port, stdin=lines)
        assert printed.splitlines() == [b"a b", b"x", b"x", b"Invalid argument(s)"]
        assert status == 1
        assert len(server.seen) == 3


def test_a_connection_lost_between_two_lines_is_made_anew() -> None:
    answers = iter([b"+one\r\n", HANG_UP, b"+three\r\n"])
    with scripted_server(lambda _: next(answers)) as server:
        status, printed, _ = run("-p", server.port, stdin=b"a\nb\nc\n")
        assert (status, printed) == (1, b"one\nthree\n")


def test_monitor_prints_until_it_is_interrupted() -> None:
    with (
        scripted_server(lambda _: b'+OK\r\n+1.5 [x] "ping"\r\n') as server,
        start_command("disque", "-p", server.port, "monitor", stdout=PIPE) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == b"OK\n"
        assert process.stdout.readline() == b'1.5 [x] "ping"\n'
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG_SECONDS) == 130
        assert process.stdout.read() == b""


def test_help_version_and_mistakes() -> None:
    status, printed, _ = run("--help")
    assert (status, printed[:6]) == (0, b"Usage:")
    status, printed, _ = run("--version")
    assert (status, printed[:7]) == (0, b"disque ")
    status, printed, complaint = run("--nonsense")
    assert (status, printed) == (1, b"")
    assert "unknown option --nonsense" in complaint


def test_stat_prints_as_many_lines_as_asked() -> None:
    info = b"# Jobs\r\nregistered_jobs:5\r\ntotal_jobs_added:7\r\n"
    with scripted_server(lambda _: b"$%d\r\n%s\r\n" % (len(info), info)) as server:
        status, printed, _ = run("-p", server.port, "--stat", "-i", "0.01", "-r", "22")
        assert status == 0
        lines = printed.decode().splitlines()
        assert len(lines) == 24
        assert [n for n, line in enumerate(lines) if line.startswith("jobs")] == [0, 21]
        assert lines[1].split()[0] == "5"


def test_stat_of_a_node_that_is_down_ends_with_a_message() -> None:
    status, _, complaint = run("-s", "/nonexistent.sock", "--stat")
    assert status == 1
    assert "Could not connect" in complaint


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    with scripted_server(lambda _: b"+OK\r\n") as server:
        words = ["-p", server.port, "-r", "-1", "x"]
        with start_command("disque", *words, stdout=PIPE, stderr=PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.wait(HANG_SECONDS) == 1
            assert process.stderr.read() == b""


def test_a_restart_ends_when_the_node_has_loaded_its_jobs() -> None:
    answers = iter([b"-LOADING\r\n", HANG_UP, b"-LOADING\r\n", b"+PONG\r\n"])

    def answer(command: list[bytes]) -> bytes:
        return HANG_UP if command == [b"restart"] else next(answers)

    with scripted_server(answer) as server:
        assert run("-p", server.port, "restart") == (0, b"", "")
        assert server.seen == [[b"restart"], *[[b"PING"]] * 4]


def test_a_refused_restart_is_an_error() -> None:
    with scripted_server(lambda _: b"-ERR no\r\n") as server:
        assert run("-p", server.port, "restart") == (1, b"ERR no\n\n", "")
