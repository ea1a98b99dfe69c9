"""Hostile names, bodies and the like, stored wherever the protocol accepts them."""

from packages.console.tests.support.console import HOSTILE, quoted
from tests.support.harness import LiveNode, Wire
from tests.support.live_helpers import pairs
from tests.support.scripted_server import Answer

SLOW = "slowlog-log-slower-than"


def store(node: LiveNode, bananaq: Wire) -> dict[str, str]:
    """Store all hostile values. ``bananaq`` is a connection to a bananaq.

    Returns:
        The values for the addresses in ``PAGES``: a queue, a schedule with its name, and jobs.
    """
    wire = node.wire()
    job = wire("ADDJOB", HOSTILE[0], "\n".join(HOSTILE), 0, "HEADERS", 1, HOSTILE[0], HOSTILE[1])
    assert isinstance(job, bytes)
    wire("CONFIG", "SET", SLOW, 0)
    for name in HOSTILE:
        more: list[str | int] = ["HEADERS", 1, name, name] if len(name) < 1000 else []
        wire("ADDJOB", name, name, 0, *more)
        wire("ADDJOB", HOSTILE[0], name, 0, *more)
        wire("CRON", "SET", name, "@daily", name, name)
        bananaq("QADD", name, 3600, name)
        bananaq("QGET", name, name)
    wire("CONFIG", "SET", SLOW, 10_000)
    wire("ADDJOB", HOSTILE[0], "x", 0, "GROUP", HOSTILE[1], "UNIQUE", HOSTILE[4])
    _connect_clients(node)
    wire("QSET", HOSTILE[1], "DEAD", HOSTILE[0], "ATTEMPTS", 3)
    for reason in HOSTILE:
        wire("ADDJOB", HOSTILE[1], reason, 0)
        taken = wire("GETJOB", "FROM", HOSTILE[1])
        assert isinstance(taken, list)
        wire("NACK", taken[0][1], "DEAD", "REASON", reason[:1000])
    for name in HOSTILE[:3]:
        wire("ADDJOB", HOSTILE[2], name, 0, "DELAY", 1_000, "HEADERS", 1, "task", name)
        wire("ADDJOB", HOSTILE[2], name, 0)
        taken = wire("GETJOB", "FROM", HOSTILE[2])
        assert isinstance(taken, list)
        wire("NACK", taken[0][1], "DELAY", 1_000, "REASON", name)
    wire("ADDJOB", "in-hand", HOSTILE[3], 0)
    wire("GETJOB", "FROM", "in-hand")
    return {"queue": quoted(HOSTILE[0]), "job": quoted(job), "letter": quoted(_letter(node))}


def _connect_clients(node: LiveNode) -> None:
    """Connect workers with hostile names, some as hostile users, and keep them connected."""
    for name in HOSTILE:
        word = name.replace(" ", "\N{NO-BREAK SPACE}")
        if not word.isprintable():
            continue
        worker = node.wire()
        if worker("ACL", "SETUSER", word, "on", "nopass", "allkeys", "+@all") == b"OK":
            assert worker("AUTH", word, "x") == b"OK"
        worker("CLIENT", "SETNAME", word)
        worker("GETJOB", "NOHANG", "FROM", "nothing")
        if len(name) < 1000:
            report = [("worker", name), ("queue", name), ("slots", name), ("state", name)]
            worker("WORKER", "REPORT", *[text for pair in report for text in pair])


def _letter(node: LiveNode) -> bytes:
    """The id of a dead letter."""
    queued = node.ask("QPEEK", HOSTILE[0], 100)
    assert isinstance(queued, list)
    return next(id for _, id, *_ in queued if "dead-from" in pairs(node.ask("SHOW", id)))


def hostile_node(port: int) -> Answer:
    """The replies of a node with hostile words everywhere: about itself, about others, and in
    errors."""
    mine, other = b"a" * 40, b"b" * 40

    def bulk(*texts: str | bytes) -> bytes:
        words = [text.encode() if isinstance(text, str) else text for text in texts]
        return b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)

    def entry(id: bytes, host: str, at: int) -> bytes:
        return b"*4\r\n" + bulk(id, host, str(at), "1")

    def answer(command: list[bytes]) -> bytes:
        words = [word.upper() for word in command[:2]]
        if words[0] == b"HELLO":
            named = entry(other, HOSTILE[1].replace(" ", "/"), 7711)
            return b"*4\r\n:1\r\n" + bulk(mine) + entry(mine, "127.0.0.1", port) + named
        if words[0] == b"INFO":
            return bulk(f"disque_version:{HOSTILE[0]}\r\npython_version:{HOSTILE[3]}\r\n")
        if words == [b"CLUSTER", b"NODES"]:
            line = f"{other.decode()} {HOSTILE[4]}:7711 {HOSTILE[0]},fail 0 0 connected\n"
            return bulk(f"{mine.decode()} 127.0.0.1:{port} myself 0 0 connected\n{line}")
        return f"-ERR {HOSTILE[0]} {HOSTILE[1]}\r\n".encode()

    return answer
