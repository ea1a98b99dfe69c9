"""A server of several processes: one cluster, supervised by one process."""

import os
import re
import signal
import socket
import threading
from pathlib import Path

import pytest

from tests.support.harness import HANG_SECONDS, free_port, free_ports, wait_until
from tests.support.live_helpers import add_job, pairs, run_server
from tests.support.several import (
    ALONE,
    COUNT,
    NOT_YET,
    Several,
    Start,
    consecutive_ports,
    is_alive,
    is_in,
    start,
)
from tests.support.supervisor import Supervisor


@pytest.mark.pure
def test_all_processes_serve_and_are_one_cluster(several: Start, tmp_path: Path) -> None:
    server = several()
    assert len({server.pid(number) for number in range(COUNT)} | {server.main.process.pid}) == 3
    hello = server.nodes[1].ask("HELLO")
    assert isinstance(hello, list)
    assert sorted(int(line[2]) for line in hello[2:]) == [server.main.port, server.main.port + 1]
    [processes] = server.nodes[1].ask("CLUSTER", "PROCESSES")  # type: ignore[misc]
    places = [(number, int(port)) for number, _, _, port, _ in processes]
    assert places == [(0, server.main.port), (1, server.main.port + 1)]
    id = add_job(server.nodes[0].wire(), *ALONE)
    job = server.nodes[1].wire()("GETJOB", "FROM", "q")
    assert isinstance(job, list)
    assert job[0][1] == id.encode()
    assert (tmp_path / "nodes.conf").exists()
    assert (tmp_path / "1" / "nodes.conf").exists()


def test_info_of_any_process_tells_of_all(several: Start) -> None:
    server = several()
    for number in range(COUNT):
        server.add(number)

    def told(number: int) -> tuple[str, str, str]:
        info = server.nodes[number].info("processes")
        return info["process"], info["processes_up"], info["processes_queued_jobs"]

    for number in range(COUNT):
        wait_until(lambda number=number: told(number) == (str(number), "2", "2"))
    lines = [server.nodes[0].info("processes")[f"process{number}"] for number in range(COUNT)]
    for number, line in enumerate(lines):
        fields = dict(word.split("=") for word in line.split(","))
        assert fields["process_id"] == str(server.pid(number))
        assert fields["address"] == f"127.0.0.1:{server.main.port + number}"
        assert (fields["state"], fields["queued_jobs"]) == ("up", "1")


@pytest.mark.pure
def test_a_process_that_is_killed_comes_back_with_its_jobs(several: Start) -> None:
    server = several("--appendonly", "yes", "--appendfsync", "always")
    id = add_job(server.nodes[1].wire(), *ALONE, "RETRY", 1)
    pid = server.pid(1)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))
    wait_until(server.serves)
    assert server.pid(1) != pid
    job = server.nodes[0].wire()("GETJOB", "FROM", "q")
    assert isinstance(job, list)
    assert job[0][1] == id.encode()


def test_a_process_that_lost_its_nodes_conf_joins_again(several: Start, tmp_path: Path) -> None:
    server = several()
    pid = server.pid(1)
    os.kill(pid, signal.SIGSTOP)
    (tmp_path / "1" / "nodes.conf").unlink()
    os.kill(pid, signal.SIGKILL)

    def knows_the_new_one() -> bool:
        try:
            new = server.nodes[1].cluster_nodes()
            ids = {words[0] for words in new}
            mine = {words[0] for words in server.nodes[0].cluster_nodes()}
        except NOT_YET:
            return False
        return len(new) >= 2 and ids <= mine

    wait_until(knows_the_new_one)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all(several: Start, number: signal.Signals) -> None:
    server = several()
    pids = [server.pid(number) for number in range(COUNT)]
    server.main.process.send_signal(number)
    assert server.main.process.wait(HANG_SECONDS) == 0
    assert not any(map(is_alive, pids))


def test_shutdown_of_two_at_once_cuts_none_off(several: Start) -> None:
    server = several()
    wires = [node.wire() for node in server.nodes]
    for wire in wires:
        wire.send("SHUTDOWN")
    assert server.main.process.wait(HANG_SECONDS) == 0


def test_sighup_ends_no_process_that_starts_or_restarts(several: Start) -> None:
    server = several()
    first, second = server.pid(0), server.pid(1)
    os.kill(second, signal.SIGKILL)
    wait_until(lambda: not is_alive(second))

    def serves() -> bool:
        server.main.process.send_signal(signal.SIGHUP)
        return server.serves()

    wait_until(serves)
    second = server.pid(1)
    run_id = server.nodes[1].info("server")["run_id"]
    server.nodes[1].wire().send("RESTART")

    def is_back() -> bool:
        os.kill(second, signal.SIGHUP)
        try:
            return server.nodes[1].info("server")["run_id"] != run_id and server.serves()
        except NOT_YET:
            return False

    wait_until(is_back)
    assert (server.pid(0), server.pid(1)) == (first, second)


def test_where_temporary_files_go_does_not_matter(
    several: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = tmp_path / ("long" * 30)
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    server = several()
    assert list(directory.iterdir()) == []
    assert server.main.stop() == 0


@pytest.mark.parametrize(("further", "who"), [(0, ""), (-1, "process 1 ")])
def test_a_second_server_leaves_the_pidfile_of_the_first_alone(
    tmp_path: Path, further: int, who: str
) -> None:
    port = free_ports(COUNT + 1)[1]
    file, log = tmp_path / "disque.pid", tmp_path / "second.log"
    options = ["--port", str(port), "--bind", "127.0.0.1", "--processes", str(COUNT)]
    options += ["--daemonize", "yes", "--pidfile", str(file), "--logfile"]
    assert run_server(*options, "first.log", cwd=tmp_path).returncode == 0
    before = file.read_text()
    try:
        second = tmp_path / "second"
        second.mkdir()
        options[1] = str(port + further)
        result = run_server(*options, str(log), "--dir", str(second), cwd=tmp_path)
        assert result.returncode == 1
        assert re.fullmatch(f"disque-server: {who}cannot start: .*\n", result.stderr)
        wait_until(lambda: not any(map(is_in(second), Path("/proc").iterdir())))
        assert log.exists()
        assert file.read_text() == before
    finally:
        os.kill(int(before), signal.SIGTERM)
    wait_until(lambda: not file.exists())


def test_shutdown_of_one_ends_all(several: Start) -> None:
    server = several()
    pids = [server.pid(number) for number in range(COUNT)]
    server.nodes[1].wire().send("SHUTDOWN")
    assert server.main.process.wait(HANG_SECONDS) == 0
    assert not any(map(is_alive, pids))


@pytest.mark.pure
def test_restart_replaces_one_process_and_keeps_its_jobs(several: Start) -> None:
    server = several()
    pid = server.pid(1)
    add_job(server.nodes[1].wire(), *ALONE)
    run_id = server.nodes[1].info("server")["run_id"]
    server.nodes[1].wire().send("RESTART")

    def is_back() -> bool:
        try:
            return server.nodes[1].info("server")["run_id"] != run_id and server.serves()
        except NOT_YET:
            return False

    wait_until(is_back)
    assert server.pid(1) == pid
    assert server.nodes[1].ask("QLEN", "q") == 1


def test_restart_at_the_common_port_replaces_one_after_the_other_and_refuses_nobody(
    several: Start, tmp_path: Path
) -> None:
    file = tmp_path / "disque.conf"
    file.write_text(f'dir "{tmp_path}"\n')
    server = several(file=str(file))
    ids = [server.add(number) for number in range(COUNT)]
    pids = [server.pid(number) for number in range(COUNT)]

    def run_ids() -> list[str]:
        return [node.info("server")["run_id"] for node in server.nodes]

    before = run_ids()
    file.write_text("nonsense 1\n")
    assert "is not possible" in server.main.wire().error("RESTART")
    file.write_text(f'dir "{tmp_path}"\n')
    asker = server.main.wire()
    asker.send("RESTART")
    over = threading.Event()
    refused: list[OSError] = []

    def connect() -> None:
        while not over.is_set():
            try:
                socket.create_connection(("127.0.0.1", server.main.port)).close()
            except OSError as problem:
                refused.append(problem)

    crowd = threading.Thread(target=connect)
    crowd.start()
    try:
        assert asker.closed()  # the one that was asked is the last
        wait_until(server.serves)
    finally:
        over.set()
        crowd.join()
    assert not refused
    assert not set(before) & set(run_ids())
    assert [server.pid(number) for number in range(COUNT)] == pids
    for node, id in zip(server.nodes, ids, strict=True):
        assert pairs(node.ask("SHOW", id))["state"] == b"queued"


def test_shutdown_with_a_new_file_writes_the_jobs_of_all(several: Start) -> None:
    server = several()
    ids = [server.add(number) for number in range(COUNT)]
    server.nodes[1].wire().send("SHUTDOWN", "REWRITE-AOF")
    assert server.main.process.wait(HANG_SECONDS) == 0
    server = several("--aof-enqueue-jobs-once", "yes")
    for node, id in zip(server.nodes, ids, strict=True):
        assert pairs(node.ask("SHOW", id))["state"] == b"queued"


def test_the_processes_stop_without_their_supervisor(several: Start) -> None:
    server = several()
    pids = [server.pid(number) for number in range(COUNT)]
    server.main.kill()
    wait_until(lambda: not any(map(is_alive, pids)))


@pytest.mark.pure
def test_the_jobs_of_all_are_there_after_a_stop(several: Start, tmp_path: Path) -> None:
    options = ("--appendonly", "yes", "--aof-enqueue-jobs-once", "yes")
    server = several(*options)
    ids = [add_job(node.wire(), *ALONE) for node in server.nodes]
    assert server.main.stop() == 0
    server = several(*options)
    for node, id in zip(server.nodes, ids, strict=True):
        assert pairs(node.ask("SHOW", id))["state"] == b"queued"


def test_a_port_in_use_is_reported_in_one_line_and_ends_all(tmp_path: Path) -> None:
    port = consecutive_ports()
    with socket.create_server(("127.0.0.1", port + 1)):
        done = run_server(
            *("--port", str(port), "--bind", "127.0.0.1", "--processes", "2"), cwd=tmp_path
        )
    assert done.returncode == 1
    assert re.fullmatch(rf"disque-server: cannot start: .*{port + 1}.*\n", done.stderr)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--port", "0", "--unixsocket", "sock"), "need a port"),
        (("--port", "55535"), "above 55535"),
        ((), "exists"),
    ],
)
def test_options_that_conflict_with_several_processes_are_reported(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    (tmp_path / "1").write_text("where a directory should be")
    done = run_server("--port", str(free_port()), *options, "--processes", "3", cwd=tmp_path)
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("port", "right"), [(7711, True), (0, False), (55534, True), (55535, False)]
)
def test_the_check_of_a_file_knows_what_several_processes_need(
    tmp_path: Path, port: int, right: bool
) -> None:
    file = tmp_path / "disque.yaml"
    file.write_text(f"port: {port}\nprocesses: 2\nunixsocket: sock\n")
    done = run_server("--check-config", str(file))
    assert done.returncode == (0 if right else 1)
    assert bool(done.stderr) is not right
    assert done.stderr.count("\n") == (0 if right else 1)


def test_settings_from_the_standard_input_cannot_be_read_by_several(tmp_path: Path) -> None:
    done = run_server("-", text="processes 2\n", cwd=tmp_path)
    assert done.returncode == 1
    assert "in a file" in done.stderr


def test_settings_are_reloaded_by_all_and_rewritten_without_what_differs(
    several: Start, tmp_path: Path
) -> None:
    file = tmp_path / "disque.conf"
    file.write_text(f'dir "{tmp_path}"\nhz 10\n')
    server = several(file=str(file))
    file.write_text(f'dir "{tmp_path}"\nhz 20\n')
    server.main.process.send_signal(signal.SIGHUP)
    for node in server.nodes:
        wait_until(lambda node=node: node.ask("CONFIG", "GET", "hz") == [b"hz", b"20"])
    assert server.nodes[1].ask("CONFIG", "SET", "hz", "30") == b"OK"
    assert server.nodes[1].ask("CONFIG", "REWRITE") == b"OK"
    text = file.read_text()
    assert f'dir "{tmp_path}"\nhz 30\n' in text
    assert f"port {server.main.port}\n" in text
    assert str(server.main.port + 1) not in text
    assert "requirepass" not in text


def test_with_a_password_they_are_one_cluster_as_well(tmp_path: Path) -> None:
    server = start(tmp_path, "--requirepass", "secret", "--rename-command", "CLUSTER", "hidden")
    try:

        def joined() -> bool:
            try:
                wire = server.nodes[1].wire()
            except OSError:
                return False
            wire("AUTH", "secret")
            text = wire("hidden", "INFO")
            wire.close()
            return isinstance(text, bytes) and b"cluster_reachable_nodes:1" in text

        wait_until(joined)
        assert server.main.stop() == 0
    finally:
        server.main.close()


# ---- systemd ------------------------------------------------------------------------------------


def test_systemd_is_notified_when_all_serve_and_when_they_stop(supervisor: Supervisor) -> None:
    port = consecutive_ports()
    main = supervisor.start("--processes", "2", port=port)
    supervisor.wait_for("READY=1")
    server = Several(main)
    assert {server.nodes[n].ask("PING") for n in range(COUNT)} == {b"PONG"}
    assert supervisor.wait_for("STATUS=") == "STATUS=2 of 2 processes serve"
    supervisor.wait_for("WATCHDOG=1")
    main.process.send_signal(signal.SIGHUP)
    supervisor.wait_for("RELOADING=1")
    supervisor.wait_for("READY=1")
    main.process.send_signal(signal.SIGTERM)
    supervisor.wait_for("STOPPING=1")
    assert main.process.wait(HANG_SECONDS) == 0


def test_a_process_that_hangs_is_ended_and_started_again(supervisor: Supervisor) -> None:
    main = supervisor.start("--processes", "2", port=consecutive_ports())
    supervisor.wait_for("READY=1")
    server = Several(main)
    pid = server.pid(1)
    os.kill(pid, signal.SIGSTOP)
    supervisor.wait_for("STATUS=1 of 2")
    assert not is_alive(pid)
    supervisor.wait_for("STATUS=2 of 2")
    assert server.pid(1) != pid
    assert main.stop() == 0


def test_passed_sockets_are_those_of_the_first_process(supervisor: Supervisor) -> None:
    port = consecutive_ports()
    with socket.create_server(("127.0.0.1", port)) as listener:
        main = supervisor.start(
            *("--port", str(port), "--bind", "127.0.0.1", "--processes", "2"), sockets=(listener,)
        )
        supervisor.wait_for("READY=1")
        server = Several(main)
        wait_until(server.serves)
        assert main.stop() == 0
        # It is still open: nobody else closed it.
        assert listener.getsockname()[1] == port
