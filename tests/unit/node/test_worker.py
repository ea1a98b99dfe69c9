"""The differences between the processes of one server."""

import os
from pathlib import Path

import pytest

from disque_trio.config import Config, load_settings, rewrite
from disque_trio.node import worker
from disque_trio.node.worker import (
    VARIABLE,
    Worker,
    WorkerError,
    announce,
    check_workers,
    meeting_ip,
    take_worker,
)

SETTINGS = {"dir": "/jobs", "port": 7711, "processes": 3, "bind": ("127.0.0.1",)}


def configured(**more: object) -> Config:
    return Config(SETTINGS | {name.replace("_", "-"): value for name, value in more.items()})


def test_a_process_hears_its_number_and_what_holds_once_only_once() -> None:
    environ = {VARIABLE: announce(2, True)}
    first = take_worker(environ)
    again = take_worker(environ)
    assert first is not None
    assert again is not None
    assert first.number == again.number == 2
    assert first.settings(configured()).aof_enqueue_jobs_once
    assert not first.settings(configured()).aof_enqueue_jobs_once  # at a reload
    assert not again.settings(configured()).aof_enqueue_jobs_once


@pytest.mark.parametrize("text", ["", "x", "-1 once"])
def test_without_a_number_it_is_the_only_process(text: str) -> None:
    assert take_worker({VARIABLE: text}) is None
    assert take_worker({}) is None


def test_the_first_process_has_what_is_configured() -> None:
    config = configured(daemonize=True, logfile="log", unixsocket="/run/d.sock")
    own = Worker(0).settings(config)
    assert own.values() == config.values() | {"daemonize": False}


def test_the_next_ones_have_places_of_their_own() -> None:
    own = Worker(2).settings(
        configured(
            logfile="log/disque.log",
            unixsocket="/run/disque.sock",
            cluster_announce_port=9000,
            tls_cert_file="cert.pem",
        )
    )
    assert (own.port, own.cluster_announce_port) == (7713, 9002)
    assert own.dir == "/jobs/2"
    assert own.unixsocket == "/run/disque-2.sock"
    assert own.logfile == "/jobs/log/disque-2.log"
    assert own.tls_cert_file == "/jobs/cert.pem"
    assert (own.tls_key_file, own.cluster_announce_ip) == ("", "")


def test_all_have_the_same_port_for_their_figures() -> None:
    config = configured(metrics_port=65_535)
    check_workers(config)
    assert {Worker(n).settings(config).metrics_port for n in range(3)} == {65_535}


def test_each_knows_where_the_others_are() -> None:
    own = Worker(1).settings(configured())
    ip = "127.0.0.1"
    assert Worker(1).other_workers(own) == [[(ip, 7711)] * 2, [(ip, 7713)] * 2]


def test_the_others_may_be_known_under_what_they_announce() -> None:
    place = Worker(0)
    own = place.settings(configured(cluster_announce_ip="192.0.2.1", cluster_announce_port=9000))
    assert place.other_workers(own)[1] == [("127.0.0.1", 7713), ("192.0.2.1", 9002)]


@pytest.mark.parametrize(
    ("bind", "ip"),
    [
        (("127.0.0.1", "::1"), "127.0.0.1"),
        (("::1",), "::1"),
        (("127.0.0.1", "192.0.2.3"), "192.0.2.3"),
        ((), "127.0.0.1"),
        (("*",), "127.0.0.1"),
    ],
)
def test_processes_meet_at_an_address_that_others_can_use_if_there_is_one(
    bind: tuple[str, ...], ip: str
) -> None:
    assert meeting_ip(configured(bind=bind)) == ip


def test_a_server_for_everybody_meets_where_connections_to_others_come_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = configured(bind=(), protected_mode=False)
    monkeypatch.setattr(worker, "_outward", lambda: "192.0.2.9")
    assert meeting_ip(config) == "192.0.2.9"
    monkeypatch.setattr(worker, "_outward", lambda: "")
    assert meeting_ip(config) == "127.0.0.1"


def test_there_has_to_be_a_port_for_each() -> None:
    check_workers(configured(port=55533))
    for wrong in (
        configured(port=0),
        configured(port=55534),
        configured(cluster_announce_port=55534),
    ):
        with pytest.raises(WorkerError, match="processes"):
            check_workers(wrong)


def test_what_differs_does_not_get_into_the_file(tmp_path: Path) -> None:
    file = tmp_path / "disque.conf"
    text = f'port 12000\nprocesses 2\ndir "{tmp_path}"\n# mine\nhz 10\n'
    file.write_text(text)
    (tmp_path / "1").mkdir()
    place = Worker(1)
    own = place.settings(load_settings(Config, os.fspath(file)))
    assert own.port == 12001
    own.config_set([(b"hz", b"20")])
    rewrite(place.shared(own))
    assert file.read_text() == text.replace("hz 10", "hz 20")


def test_ports_for_tls_follow_each_other_as_well() -> None:
    first = configured(port=7711, tls_port=8711, cluster_announce_tls_port=9711)
    second = Worker(1).settings(first)
    assert (second.port, second.tls_port, second.cluster_announce_tls_port) == (7712, 8712, 9712)
    only = Worker(1).settings(configured(port=0, tls_port=8711))
    assert (only.port, only.tls_port, only.known_port) == (0, 8712, 8712)
    assert Worker(0).other_workers(configured(port=0, tls_port=8711))[0][0][1] == 8712


def test_ports_of_both_kinds_must_not_overlap() -> None:
    check_workers(configured(port=7711, tls_port=7721))
    for tls_port in (7710, 7712, 65_535):
        with pytest.raises(WorkerError):
            check_workers(configured(port=7711, tls_port=tls_port))
