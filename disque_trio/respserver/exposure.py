"""Finds out whether strangers can reach the client port or the cluster bus, and logs it.

Anyone who reaches an address other than a loopback one is a stranger. A password, or TLS with
certificates, keeps strangers from the ports for clients; TLS or a secret keeps them from the
cluster bus; and protected-mode keeps them from both if no address to listen on was named. A
firewall cannot be seen from here.
"""

from collections.abc import Callable, Sequence

from disque_trio.notation.addresses import format_address
from disque_trio.process.logs import Log
from disque_trio.process.sockets import WILDCARDS, is_local
from disque_trio.respserver.acl.users import Users
from disque_trio.respserver.io.links import Limits

Place = tuple[str, int]  # address and port


class Exposure:
    """The doors of this process, and which warnings were logged.

    Args:
        clients, bus: where it listens for clients and other nodes.
        figures: where anybody can read the figures.
        config: the settings that can change.
        guarded: whether nodes have to prove that they are not strangers.
        holds: the word for what it holds.
        setting: the one that names addresses to listen on.
        users: who may log in; None: only ``requirepass`` counts.
    """

    def __init__(
        self,
        clients: Sequence[Place],
        bus: Sequence[Place],
        config: Limits,
        log: Log,
        *,
        guarded: Callable[[], bool] = lambda: False,
        figures: Sequence[Place] = (),
        holds: str = "jobs",
        setting: str = "bind",
        users: Users | None = None,
    ) -> None:
        self._clients = clients
        self._bus = bus
        self._config = config
        self._log = log
        self._guarded = guarded
        self._figures = figures
        self._holds = holds
        self._setting = setting
        self._users = users
        self._said: list[str] = []

    def lines(self, processes: int = 1) -> list[str]:
        """The warnings: a line for each door that strangers can use. ``processes``: how many there
        are; each has the next higher ports."""
        return [line for _, line in self.doors(processes)]

    def doors(self, processes: int = 1) -> list[tuple[str, str]]:
        """The doors that strangers can use, ``clients``, ``bus`` or ``metrics``, and the warning
        for each."""
        holds, setting = self._holds, self._setting
        protected = self._config.protected_mode
        found = []
        anybody = self._users.default.open if self._users else not self._config.requirepass
        at = _reached(self._open(), protected, processes) if anybody else ""
        if at:
            text = (
                f"clients at {at} need no password: anyone who connects can read, add and remove "
                f"{holds} and change settings. Set requirepass, name other addresses with "
                f"{setting}, or keep strangers out with a firewall"
            )
            found.append(("clients", text))
        at = "" if self._guarded() else _reached(self._bus, protected, processes)
        if at:
            text = (
                f"the cluster bus at {at} asks for no password, whatever requirepass is: anyone "
                f"who connects can join the cluster, and then read and remove {holds}. Set "
                "cluster-secret, cluster-identity, or tls-cluster yes with tls-cert-file, "
                f"tls-key-file and tls-ca-cert-file, name other addresses with {setting}, or use "
                "a firewall that admits only the other nodes"
            )
            found.append(("bus", text))
        at = _reached(self._figures, False, 1)
        if at:
            text = (
                f"the figures at {at} need no password: anyone who connects can read the names of "
                "queues, and how much is done. Name other addresses with metrics-bind, or use a "
                "firewall that admits only Prometheus"
            )
            found.append(("metrics", text))
        return found

    def _open(self) -> list[Place]:
        """The places where clients need not show a certificate."""
        config = self._config
        asks = config.tls_port if config.tls_auth_clients == "yes" else 0
        return [place for place in self._clients if place[1] != asks]

    def look_first(self, processes: int = 1, number: int = 0) -> None:
        """Warn of doors that are open at the start. Process 0 does so for all ``processes``."""
        if number == 0:
            for line in self.lines(processes):
                self._log.warning(line)
        self._said = self.lines()

    def look(self) -> None:
        """Warn of doors that have opened since. Call it when settings may have changed."""
        lines = self.lines()
        for line in lines:
            if line not in self._said:
                self._log.warning(line)
        self._said = lines


def _reached(places: Sequence[Place], protected: bool, processes: int) -> str:
    """Return those of ``places`` that serve strangers, as text."""
    return ", ".join(
        format_address(ip, port) + (f"-{port + processes - 1}" if processes > 1 else "")
        for ip, port in places
        if not (protected if ip in WILDCARDS else is_local(ip))
    )
