"""A team that takes from a node whatever it can get, and does not care for others."""

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

from disque_trio.resp.command import encode_command
from tests.support.harness import LiveNode, Wire

RULES = (
    "on",
    ">bad",
    "~bad.*",
    "~@*",
    "+@all",
    "-@admin",
    "-@dangerous",
    "+qpurge",
    "%maxmemory=100kb",
    "%maxkeys=20",
    "%maxschedules=5",
    "%maxbindings=5",
    "%maxpolicies=5",
    "%maxconnections=20",
    "%maxoutput=1mb",
)
LOGIN = encode_command(("AUTH", "bad", "bad"))
BODY = "x" * 1000


def _fill_memory(number: int) -> bytes:
    options = ("DELAY", 60) if number % 3 else ()
    return encode_command(("ADDJOB", f"bad.{number % 50}", BODY, 0, *options))


def _fill_keys(number: int) -> bytes:
    options = ("TTL", 1, "RETRY", 0, "REPLICATE", 1, "UNIQUE", f"k{number}", "FOR", 10**6)
    return encode_command(("ADDJOB", "bad.keys", "b", 0, *options))


def _fill_schedules(number: int) -> bytes:
    return encode_command(("CRON", "SET", f"bad{number}", "@every 1s", "bad.ticks", BODY))


def _fill_bindings(number: int) -> bytes:
    return encode_command(("BIND", f"t{number}.#", f"bad.{number}"))


def _pause_queues(number: int) -> bytes:
    options = ("BCAST",) if number % 2 else ()
    return encode_command(("PAUSE", f"bad.{number}", "in", *options))


def _flood(number: int) -> bytes:
    return encode_command(("PING",)) * 100


def _scan(number: int) -> bytes:
    return encode_command(("JSCAN", "QUEUE", "bad.1", "BUSYLOOP", "REPLY", "all"))


def _publish(number: int) -> bytes:
    return encode_command(("ADDJOB", f"@t{number % 9}.x", BODY, 0))


def _ask_and_read_nothing(number: int) -> bytes:
    return encode_command(("QPEEK", f"bad.{number % 50}", 100)) * 5


def _group(number: int) -> bytes:
    words = [encode_command(("MULTI",))]
    words += [encode_command(("QPEEK", f"bad.{number % 50}", 50))] * 20
    return b"".join(words) + encode_command(("EXEC",))


ATTACKS: tuple[Callable[[int], bytes], ...] = (
    _fill_memory,
    _fill_keys,
    _fill_schedules,
    _fill_bindings,
    _pause_queues,
    _flood,
    _scan,
    _publish,
    _ask_and_read_nothing,
    _group,
)


class HostileTeam:
    """Attacks ``node`` in a thread until it is closed: each attack over a connection of its own,
    which is opened again whenever the node closes it, and some more connections.

    Attributes:
        rounds: how often all attacks have had their turn.
        refused: logins that were refused.
        seen: the codes of the errors that it got.
    """

    def __init__(self, node: LiveNode) -> None:
        self._node = node
        self._over = threading.Event()
        self.rounds = 0
        self.refused = 0
        self.seen: set[bytes] = set()
        self._more: list[socket.socket] = []
        self._thread = threading.Thread(target=self._attack)
        self._thread.start()

    def close(self) -> None:
        """End all attacks."""
        self._over.set()
        self._thread.join()
        for sock in self._more:
            sock.close()

    def _attack(self) -> None:
        attackers = [_Attacker(self._node, attack) for attack in ATTACKS]
        try:
            for _ in itertools.count():
                for attacker in attackers:
                    with suppress(OSError):
                        attacker.go_on()
                    self.seen |= attacker.seen
                self._open_more()
                self.rounds += 1
                if self._over.wait(0.002):
                    return
        finally:
            for attacker in attackers:
                attacker.close()

    def _open_more(self) -> None:
        """Open one more connection now and then, and keep those that are let in."""
        if self.rounds % 50:
            return
        sock = socket.create_connection((self._node.host, self._node.port), 20)
        sock.sendall(LOGIN)
        if sock.recv(100).startswith(b"+OK"):
            self._more.append(sock)
        else:
            self.refused += 1
            sock.close()


class _Attacker:
    """One connection with one kind of attack. It reads a little, or nothing at all."""

    def __init__(self, node: LiveNode, attack: Callable[[int], bytes]) -> None:
        self._node = node
        self._attack = attack
        self._reads = attack is not _ask_and_read_nothing
        self._numbers: Iterator[int] = itertools.count()
        self._sock: socket.socket | None = None
        self._left = b""
        self._pause = 0
        self.seen: set[bytes] = set()

    def go_on(self) -> None:
        """Send as much as the node takes, without waiting."""
        if self._pause:
            self._pause -= 1
            return
        if self._sock is None:
            self._sock = socket.create_connection((self._node.host, self._node.port), 20)
            self._sock.sendall(LOGIN)
            # Otherwise it would be another user, who has no limits in tests.
            if not self._sock.recv(100).startswith(b"+OK"):
                self.close()
                return
            self._sock.setblocking(False)
            self._left = b""
        try:
            for _ in range(10):
                self._left = self._left or self._attack(next(self._numbers))
                self._left = self._left[self._sock.send(self._left) :]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if self._reads:
            self._read()

    def _read(self) -> None:
        assert self._sock is not None
        try:
            data = self._sock.recv(1 << 16)
            if not data:
                self.close()
            for code in (b"OOM", b"LIMIT"):
                if b"-" + code in data:
                    self.seen.add(code)
        except BlockingIOError:
            pass

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None
            self._pause = 30


def declare_teams(node: LiveNode, rate: int) -> Wire:
    """Make a hostile and a quiet user; the hostile one has a budget with this ``rate``. Returns a
    connection of the quiet one."""
    control = node.wire()
    assert control("ACL", "SETUSER", "bad", *RULES, f"%rate={rate}/s") == b"OK"
    quiet = ("on", ">good", "~good.*", "+@all", "-@admin", "-@dangerous")
    assert control("ACL", "SETUSER", "good", *quiet) == b"OK"
    wire = node.wire()
    assert wire("AUTH", "good", "good") == b"OK"
    return wire
