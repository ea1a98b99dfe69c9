"""The warnings about ports open to strangers agree with who is really let in."""

import socket
from itertools import product
from types import SimpleNamespace

import pytest

from disque_trio.cluster.bus import Bus
from disque_trio.cluster.buslinks import BusLinks
from disque_trio.config import Config
from disque_trio.process.clock import Clock
from disque_trio.respserver.acl.catalog import Catalog
from disque_trio.respserver.acl.users import Users
from disque_trio.respserver.exposure import Exposure
from disque_trio.respserver.io.listeners import admit_client
from disque_trio.respserver.io.poller import Poller
from disque_trio.respserver.io.stats import Stats
from disque_trio.respserver.origins import Origins
from tests.support.bus_bench import Notes

STRANGER = "192.0.2.77"
ADDRESSES = {  # those listened on, and those a stranger can reach
    "everything": (["::", "0.0.0.0"], ["::", "0.0.0.0"]),
    "ipv4": (["0.0.0.0"], ["0.0.0.0"]),
    "this machine": (["127.0.0.1", "::1", "127.0.0.2"], []),
    "a network": (["192.0.2.2"], ["192.0.2.2"]),
    "both": (["127.0.0.1", "2001:db8::2"], ["2001:db8::2"]),
    "mixed": (["0.0.0.0", "192.0.2.2"], ["0.0.0.0", "192.0.2.2"]),
    "no port": ([], []),
}
CASES = list(product(ADDRESSES, [False, True], [False, True], ["", "tls", "secret"]))
SECRET = "a-secret-of-all-nodes"


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def warning(self, line: str, **fields: object) -> None:
        self.lines.append(line)

    def ignored(self, line: str, **fields: object) -> None:
        pass

    debug = notice = ignored


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname(), 5)
        ours, _ = listener.accept()
    return ours, theirs


def is_client_let_in(config: Config, exposed: bool) -> bool:
    """Return whether a stranger can send commands without a password."""
    ours, theirs = tcp_pair()
    taken: list[object] = []
    users = Users(Catalog(()))
    users.require(config.requirepass.encode())
    engine = SimpleNamespace(
        config=config,
        node=SimpleNamespace(users=users),
        stats=Stats(),
        clients=SimpleNamespace(
            connections=[],
            origins=Origins(),
            add=lambda *connection: taken.append(connection),
        ),
    )
    with ours, theirs:
        admit_client(engine, ours, "", STRANGER, exposed)  # type: ignore[arg-type]
    return bool(taken) and not config.requirepass


def is_node_let_in(config: Config, exposed: bool) -> bool:
    """Return whether a stranger can join the bus without a certificate or secret."""
    if config.tls_cluster or config.cluster_secret:
        return False
    poller, clock, stats, log = Poller(), Clock(), Stats(), Log()
    links = BusLinks(config, stats, log, poller)  # type: ignore[arg-type]
    bus = Bus(
        links,
        Notes(),
        lambda sender, packet, now: None,
        lambda id: True,
        lambda: None,
        config,
        clock,
        stats,
        log,  # type: ignore[arg-type]
    )
    ours, theirs = tcp_pair()
    with ours, theirs:
        bus.admit(ours, STRANGER, exposed)
        let_in = links.count
        bus.close_all()
        poller.close()
    return let_in > 0


@pytest.mark.parametrize(("bind", "password", "protected", "guard"), CASES)
def test_there_is_one_line_for_each_door_that_strangers_find_open(
    bind: str, password: bool, protected: bool, guard: str
) -> None:
    config = Config(
        {
            "requirepass": "secret" if password else "",
            "protected-mode": protected,
            "tls-cluster": guard == "tls",
            "cluster-secret": (SECRET,) if guard == "secret" else (),
        }
    )
    listened, reached = ADDRESSES[bind]
    open_to = {
        door: [ip for ip in reached if let_in(config, ip in ("::", "0.0.0.0"))]
        for door, let_in in (("clients", is_client_let_in), ("bus", is_node_let_in))
    }
    places = ([(ip, 7711) for ip in listened], [(ip, 17711) for ip in listened])
    exposure = Exposure(*places, config, Log(), guarded=lambda: guard != "")  # type: ignore[arg-type]
    lines = exposure.lines()
    wanted = [door for door, addresses in open_to.items() if addresses]
    assert [("bus" if "cluster bus" in line else "clients") for line in lines] == wanted
    for door, line in zip(wanted, lines, strict=True):
        port = 17711 if door == "bus" else 7711
        for ip in listened:
            place = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
            assert (f" {place}" in line) == (ip in open_to[door]), line
        advice = {
            "bus": ["cluster-secret", "tls-cluster yes", "tls-ca-cert-file"],
            "clients": ["requirepass"],
        }
        for word in [*advice[door], "bind", "firewall"]:
            assert word in line


def test_several_processes_have_several_ports() -> None:
    places = ([("192.0.2.2", 7711)], [("192.0.2.2", 17711)])
    clients, bus = Exposure(*places, Config(), Log()).lines(3)  # type: ignore[arg-type]
    assert " 192.0.2.2:7711-7713" in clients
    assert " 192.0.2.2:17711-17713" in bus


def told(exposure: Exposure, config: Config, log: Log, *pairs: tuple[str, str]) -> list[str]:
    log.lines.clear()
    config.config_set([(name.encode(), value.encode()) for name, value in pairs])
    exposure.look()
    return ["bus" if "cluster bus" in line else "clients" for line in log.lines]


def test_what_is_opened_while_the_process_runs_is_told_when_it_is_opened() -> None:
    config, log = Config(), Log()
    places = ([("0.0.0.0", 7711)], [("0.0.0.0", 17711)])
    exposure = Exposure(
        *places,
        config,
        log,  # type: ignore[arg-type]
        guarded=lambda: config.cluster_secret != (),
    )
    exposure.look_first()
    assert log.lines == []
    assert told(exposure, config, log, ("protected-mode", "no")) == ["clients", "bus"]
    assert told(exposure, config, log, ("hz", "20")) == []
    assert told(exposure, config, log, ("requirepass", "secret")) == []
    assert told(exposure, config, log, ("requirepass", "")) == ["clients"]
    assert told(exposure, config, log, ("protected-mode", "yes")) == []
    assert told(exposure, config, log, ("protected-mode", "no"), ("requirepass", "x")) == ["bus"]
    assert told(exposure, config, log, ("cluster-secret", SECRET)) == []
    assert told(exposure, config, log, ("cluster-secret", "")) == ["bus"]


def test_one_of_several_processes_speaks_for_all_at_the_start_and_each_for_itself_later() -> None:
    config, log = Config({"requirepass": "secret"}), Log()
    places = [([("192.0.2.2", 7711 + n)], [("192.0.2.2", 17711 + n)]) for n in range(2)]
    both = [Exposure(*place, config, log) for place in places]  # type: ignore[arg-type]
    for number, exposure in enumerate(both):
        exposure.look_first(2, number)
    (line,) = log.lines
    assert " 192.0.2.2:17711-17712" in line
    assert told(both[1], config, log) == []
    assert told(both[1], config, log, ("requirepass", "")) == ["clients"]
    assert " 192.0.2.2:7712 " in log.lines[0]


def test_a_door_of_bananaq_is_one_to_events() -> None:
    words = {"holds": "events", "setting": "listen-addr"}
    places = [("192.0.2.2", 4777)]
    (line,) = Exposure(places, [], Config(), Log(), **words).lines()  # type: ignore[arg-type]
    assert "events" in line
    assert "listen-addr" in line
    assert "jobs" not in line
    assert "bind" not in line


@pytest.mark.parametrize(("auth", "said"), [("yes", 0), ("optional", 1), ("no", 1)])
def test_where_clients_have_to_show_a_certificate_the_door_is_closed(auth: str, said: int) -> None:
    config = Config({"tls-port": 7712, "tls-auth-clients": auth})
    places = [("192.0.2.2", 7711), ("192.0.2.2", 7712)]
    (line,) = Exposure(places, [], config, Log()).lines()  # type: ignore[arg-type]
    assert "192.0.2.2:7711" in line
    assert line.count("192.0.2.2:7712") == said


def test_figures_that_strangers_can_read_are_told_of() -> None:
    places = [("127.0.0.1", 9711), ("0.0.0.0", 9711)]
    exposure = Exposure([], [], Config({"requirepass": "x"}), Log(), figures=places)  # type: ignore[arg-type]
    [line] = exposure.lines()
    assert "0.0.0.0:9711" in line
    assert "127.0.0.1" not in line
    assert "metrics-bind" in line
    near = Exposure([], [], Config(), Log(), figures=places[:1])  # type: ignore[arg-type]
    assert near.lines() == []
