"""Damaged packets for a node: every type of packet that a pair of nodes sends, changed at random,
and aimed at what the node has."""

import json
import random
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

from disque_trio.aof.loader import Loader
from disque_trio.eventlog.lines import LineWriter
from disque_trio.node.core import pause_words
from disque_trio.node.core.jobs.job import ACKED, FLAG_DELIVERED, FLAG_TRAILER, WAIT_REPL
from disque_trio.node.core.node import Node
from disque_trio.node.core.shared import binding_words, policy_words, schedule_words
from disque_trio.protocol.bus import (
    ANSWER,
    BINDINGS,
    DELJOB,
    ENDJOB,
    ENQUEUE,
    GIVEN,
    GOTACK,
    HEADER_SIZE,
    PAUSES,
    POLICIES,
    QUESTION,
    REPLJOB,
    SCHEDULES,
    SETACK,
    SETTLED,
    UPDATEJOB,
    WILLQUEUE,
    YOURJOBS,
    packet_type,
)
from disque_trio.protocol.fields import (
    Field,
    FieldsError,
    pack_fields,
    pack_number,
    unpack_fields,
    unpack_number,
)
from disque_trio.protocol.serialjob import ID_LENGTH
from disque_trio.respserver.slices import do_slice
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

TYPES = range(REPLJOB, SETTLED + 1)  # those that the core of a node handles
QUEUES = ("q", "mail.new", "mail.old", "lost")
EXTREMES = [0, 1, 3, 2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**48, 2**62, 2**63, 2**64 - 1]
_WITH_FIELDS = {type for type in range(ENDJOB, PAUSES + 1) if type != UPDATEJOB}
# What is written to files comes often, and what ends jobs comes seldom: some have to be left.
_OFTEN = (POLICIES, SCHEDULES, BINDINGS, PAUSES, QUESTION, REPLJOB, YOURJOBS, GIVEN)
_SELDOM = (SETACK, GOTACK, DELJOB, ENDJOB, SETTLED)
_WEIGHTS = [30 if type in _OFTEN else 1 if type in _SELDOM else 10 for type in TYPES]
_MOST_OF_A_KIND = 60
Kind: TypeAlias = tuple[int, ...]


def ask(mesh: Mesh, index: int, *words: str | int | bytes) -> bytes:
    """The bytes that a new client of a node gets for a request, as far as they come at once."""
    bench = mesh[index]
    client = bench.client()
    bench.send(client, *words)
    mesh.settle()
    return bench.raw(client)


def work(mesh: Mesh) -> None:
    """Let clients of both nodes use everything that makes packets."""
    for bench in mesh.nodes:
        bench.node.replicas.default_copies = 2
    policy = ("ATTEMPTS", 3, "DEAD", "lost", "BACKOFF", 1, 5, "RATE", "9/m", "BURST", 20)
    ask(mesh, 0, "QSET", "mail.*", *policy, "DEADTTL", 900)
    ask(mesh, 1, "QSET", "q", "MAXLEN", 1000, "ACTIVE", 9, "GROUPS", "fair", "GROUPACTIVE", 9)
    ask(mesh, 1, "QSET", "later.*", "TTL", 900, "RETRY", 9, "REPLICATE", 2)
    ask(mesh, 1, "QSET", "q", "MAXBYTES", 90_000, "GROUPRATE", "900/s")
    ask(mesh, 0, "QSET", "gone", "TTL", 5)
    ask(mesh, 0, "QDEL", "gone")
    ask(mesh, 1, "CRON", "SET", "s", "@every 20s", "TZ", "UTC", "q", "tick", "RETRY", 5)
    ask(mesh, 1, "CRON", "SET", "often", "@every 1s", "CATCHUP", "mail.old", "tick", "TTL", 9)
    ask(mesh, 0, "BIND", "topic.*", "q")
    by_user(mesh, 0, "CRON", "SET", "mine", "@hourly", "q", "tick")
    by_user(mesh, 1, "BIND", "mine.*", "q")
    ask(mesh, 1, "PAUSE", "lost", "out", "bcast")
    ask(mesh, 1, "PAUSE", "mail.old", "none", "bcast")
    ids: list[bytes] = []
    for number in range(8):
        options: list[str | int] = ["RETRY", 2, "TTL", 500, "REPLICATE", 2]
        options += ["GROUP", f"g{number % 2}", "HEADERS", 1, "h", number, "PRIORITY", number % 8]
        ids.append(ask(mesh, number % 2, "ADDJOB", "q", "body", 0, *options)[1:-2])
    for index in range(2):
        for option in (
            ["UNIQUE", f"k{index}", "FOR", 99],
            ["UNIQUE", "same"],
            ["ASYNC"],
            ["UNIQUE", "start", "UNTIL", "START"],
            ["UNIQUE", "last", "REPLACE", "REPLICATE", 1],
        ):
            ask(mesh, index, "ADDJOB", "mail.new", "body", 500, "RETRY", 2, *option)
        ask(mesh, index, "GETJOB", "TIMEOUT", 500, "FROM", "mail.old")
        ask(mesh, index, "WAITJOB", 500, *ids[:2])
    ask(mesh, 1, "ADDJOB", "mail.old", "for the other node", 0, "REPLICATE", 1, "RETRY", 2)
    ask(mesh, 0, "ADDJOB", "@topic.x", "copies", 0, "RETRY", 2, "REPLICATE", 1)
    mesh.advance(1)
    reply = ask(mesh, 0, "GETJOB", "NOHANG", "COUNT", 3, "FROM", "q", "mail.new")
    taken = [line for line in reply.split(b"\r\n") if line.startswith(b"D-")]
    for words, id in zip((["WORKING"], ["NACK"], ["NACK", "REASON", "x"]), taken, strict=False):
        ask(mesh, 0, words[0], id, *words[1:])
    ask(mesh, 1, "UPDATEJOB", ids[1], "BODY", "changed")
    ask(mesh, 1, "CANCEL", ids[2])
    ask(mesh, 1, "ACKJOB", ids[3], "RESULT", "done")
    ask(mesh, 0, "ACKJOB", ids[4])
    ask(mesh, 1, "DELJOB", ids[5])
    ask(mesh, 0, "DEQUEUE", ids[0])
    ask(mesh, 0, "ENQUEUE", ids[0])
    mesh.advance(4)


def work_on(mesh: Mesh) -> None:
    """After ``work``, let clients use what needs the other node's help, and nodes compare what they
    share."""
    ids = [ask(mesh, index, "ADDJOB", "mail.new", "x", 0, "RETRY", 9)[1:-2] for index in (0, 1)]
    waiting = mesh[0].client()
    only = ask(mesh, 1, "ADDJOB", "q", "here only", 0, "REPLICATE", 1, "DELAY", 1)[1:-2]
    mesh[0].send(waiting, "WAITJOB", 500, *ids, only)
    mesh.advance(0.5)
    ask(mesh, 1, "ACKJOB", only, "RESULT", "done")
    ask(mesh, 1, "ACKJOB", ids[1], "RESULT", "done")
    ask(mesh, 0, "GETJOB", "TIMEOUT", 500, "PATTERN", "FROM", "mail.*")
    for index in range(2):
        taken = ask(mesh, index, "GETJOB", "NOHANG", "COUNT", 2, "FROM", "mail.new")
        for id in [line for line in taken.split(b"\r\n") if line.startswith(b"D-")]:
            ask(mesh, index, "NACK", id, "DEAD", "REASON", "fuzz")
    for words in (
        ("REDRIVE", "lost", "TO", "q", "COUNT", 1),
        ("REDRIVE", "lost", "MATCH", *ids),
        ("QMOVE", "q", "mail.old", "COUNT", 50),
        ("QPURGE", "mail.old"),
        ("QDELKEY", "mail.new", "k0", "k1", "same"),
    ):
        ask(mesh, 0, *words)
        for _ in range(5):
            slices(mesh)
            mesh.advance(0.1)
    mesh[1].node.farewell.begin(mesh[1].now)
    mesh.settle()
    mesh[1].node.exports.stopping = False
    pass_time(mesh, 1)
    mesh[0].node.recovery.lost[only] = None  # as if its file had been damaged
    for index, words in (
        (0, ("QSET", "apart", "MAXLEN", 5)),
        (1, ("BIND", "apart", "q")),
        (0, ("PAUSE", "apart", "in", "bcast")),
        (1, ("CRON", "SET", "apart", "@daily", "q", "tick")),
    ):
        mesh.cut(0, 1)  # one knows something that the other one does not
        ask(mesh, index, *words)
        mesh.join(0, 1)
        pass_time(mesh, 12)


_REQUESTS: Final = (
    "ADDJOB q later 0 RETRY 5", "ADDJOB mail.new x 0 RETRY 5 UNIQUE k FOR 9",
    "ADDJOB q x 0 UNIQUE last REPLACE DELAY 3", "ADDJOB q x 0 UNIQUE start UNTIL START",
    "ADDJOB @topic.x x 0",
    "ADDJOB lost x 50 REPLICATE 2 GROUP g", "GETJOB NOHANG COUNT 2 FROM q mail.new mail.old lost",
    "GETJOB TIMEOUT 900 PATTERN FROM mail.*", "GETJOB TIMEOUT 900 FROM mail.old", "QLEN q",
    "CONSUME mail.new CREDIT 3", "REDRIVE lost", "QPURGE mail.old", "QMOVE q mail.old COUNT 2",
    "QMOVE mail.old q", "QDELKEY mail.new k k0 same", "QSET q MAXLEN 1000 ACTIVE 9 GROUPS fair",
    "QSET mail.* RATE 100/s ATTEMPTS 3 DEAD lost", "QDEL gone", "BIND topic.* q", "BINDINGS FULL",
    "CRON RUN s", "CRON SET t @hourly q x", "PAUSE lost none bcast", "PAUSE lost in bcast", "INFO",
    "WAITJOB 900 $", "ACKJOB $ RESULT ok", "NACK $", "NACK $ DEAD", "WORKING $", "SHOW $",
    "UPDATEJOB $ BODY new DELAY 1", "CANCEL $", "ENQUEUE $", "DEQUEUE $", "PROMOTE $", "FASTACK $",
)  # fmt: skip
"""Of clients, while the packets arrive; $: the id of a job."""
_ADD: Final = 0.4
"""How often a job is added instead, as packets and clients end many."""


def use(mesh: Mesh, rng: random.Random) -> None:
    """Let a client of one of the nodes send a request, and others leave."""
    bench = rng.choice(mesh.nodes)
    words = _REQUESTS[0 if rng.random() < _ADD else rng.randrange(len(_REQUESTS))].split()
    ids = list(bench.node.store.jobs.values()) if "$" in words else []
    if "$" in words and not ids:
        return
    words = [str(rng.choice(ids).id, "ascii") if word == "$" else word for word in words]
    bench.send(bench.client(), *words)
    slices(mesh)
    for client in bench.host.clients()[1:]:
        client.out.clear()
        if rng.random() < 0.1 and not client.in_slices:
            bench.disconnect(client)


def by_user(mesh: Mesh, index: int, *words: str | int | bytes) -> None:
    """A request of a user with a name, whom all nodes know."""
    for bench in mesh.nodes:
        bench.node.users.set(b"ann", (b"on", b"nopass", b"~*", b"&*", b"+@all"))
    bench = mesh[index]
    client = bench.client()
    bench.send(client, "AUTH", "ann", "x")
    bench.send(client, *words)
    mesh.settle()
    assert b"-" not in bench.raw(client)[:6]


def pass_time(mesh: Mesh, seconds: float) -> None:
    """Let time pass, and do the periodic work, too."""
    while seconds > 0:
        slices(mesh)
        mesh.advance(min(seconds, 0.5))
        seconds -= 0.5
        for bench in mesh.nodes:
            bench.node.cron(bench.now)
        mesh.settle()
    slices(mesh)


def slices(mesh: Mesh) -> None:
    """Do what is left of commands about many jobs."""
    for bench in mesh.nodes:
        while bench.node.batches.waiting:
            do_slice(bench.node, bench.now)
    mesh.settle()


class Corpus:
    """The packets that a pair of nodes sends while its clients work.

    Attributes:
        ids: of the nodes.
        packets: by type, and in it by kind (see ``kind_of``).
    """

    def __init__(self) -> None:
        self.packets: dict[int, dict[Kind, list[bytes]]] = {type: {} for type in TYPES}
        self._record(False)
        self._record(True)

    def _record(self, as_c: bool) -> None:
        """``as_c``: each takes the other one for an older node, and later for a C node, which are
        told otherwise of jobs."""
        mesh = Mesh(2)
        if as_c:
            mesh.older.add(0)
        self.ids = mesh.ids
        mesh.lose = self._note
        work(mesh)
        work_on(mesh)
        for bench in mesh.nodes:
            bench.node.clocks.ask(bench.now)
        mesh.settle()
        if as_c:
            mesh.peers[0].as_c.add(mesh.ids[1])
            mesh.peers[1].as_c.add(mesh.ids[0])
            for index in range(2):
                id = mesh.add(index, "RETRY", 1, "REPLICATE", 2)
                mesh.advance(2)
                mesh[1 - index]("WORKING", id)
                mesh.settle()
                mesh[1 - index]("ACKJOB", id)
                mesh.advance(3)
        for number in range(4):  # jobs that move, as nothing is special about them
            ask(mesh, 0, "ADDJOB", "moves", "body", 0, "REPLICATE", 1, "RETRY", 9)
            reply = ask(mesh, 1, "GETJOB", "TIMEOUT", 500, "FROM", "moves")
            mesh.advance(number * 0.1)
            ask(mesh, 1, "ACKJOB", *[line for line in reply.split() if line.startswith(b"D-")])
        for type in (ENQUEUE, WILLQUEUE, DELJOB):  # only nodes in a hurry send them
            at, packet = next(_ids_in(self.of(REPLJOB)))
            id = packet[at : at + ID_LENGTH]
            self._note(0, 1, mesh[0].node.packets.about_job(type, id))

    def _note(self, source: int, target: int, packet: bytes) -> bool:
        of_type = self.packets[packet_type(packet)]
        packets = of_type.setdefault(kind_of(packet), [])
        if len(packets) < _MOST_OF_A_KIND:
            packets.append(packet)
        return False

    def of(self, type: int) -> list[bytes]:
        """All packets of a type."""
        return [packet for packets in self.packets[type].values() for packet in packets]


def kind_of(packet: bytes) -> Kind:
    """What tells packets of one type apart: the kind of a question, and the types of the fields."""
    type = packet_type(packet)
    if type not in _WITH_FIELDS:
        return ()
    fields = unpack_fields(packet[HEADER_SIZE:])
    if type in (QUESTION, ANSWER):
        return (_ticket(packet)[1], *sorted({type for type, _ in fields}))
    return tuple(sorted({type for type, _ in fields}))


def _ticket(packet: bytes) -> tuple[int, int]:
    """Number and kind of a QUESTION or ANSWER."""
    _, value = unpack_fields(packet[HEADER_SIZE:])[0]
    return unpack_number(value[:8]), unpack_number(value[8:])


class Fuzzer:
    """Changes recorded packets.

    Args:
        corpus: the packets.
        mesh: the first of its two nodes gets them, as if from the other one.
        seed: of the changes.
    """

    def __init__(self, corpus: Corpus, mesh: Mesh, seed: int) -> None:
        self.rng = random.Random(seed)
        self._corpus = corpus
        self._mesh = mesh
        self._ids = [packet[at : at + ID_LENGTH] for at, packet in _ids_in(corpus.of(REPLJOB))]
        self._kinds = {type: list(kinds.values()) for type, kinds in corpus.packets.items()}
        self._open: deque[bytes] = deque(maxlen=20)
        mesh.lose = self._lose

    def _lose(self, source: int, target: int, packet: bytes) -> bool:
        """Half of what the nodes themselves send gets lost."""
        if source == 0 and packet_type(packet) == QUESTION:
            self._open.append(packet)
        return self.rng.random() < 0.5

    def packet(self) -> bytes:
        """The next packet."""
        rng = self.rng
        (type,) = rng.choices(TYPES, _WEIGHTS)
        packet = bytearray(rng.choice(rng.choice(self._kinds[type])))
        for old, new in zip(self._corpus.ids, self._mesh.ids, strict=True):
            packet = packet.replace(old, new)
        if type == ANSWER and self._open and rng.random() < 0.8:
            packet = self._answer(packet)
        if type in _WITH_FIELDS and rng.random() < 0.7:
            body = self._fields(unpack_fields(bytes(packet[HEADER_SIZE:])))
            packet[HEADER_SIZE:] = pack_fields(body)
        self._aim(packet)
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            self._damage(packet)
        return bytes(packet)

    def _answer(self, packet: bytearray) -> bytearray:
        """``packet``, or better another answer, as one to a question that the victim has asked."""
        number, kind = _ticket(self.rng.choice(self._open))
        fitting = [
            packet
            for (of, *_), packets in self._corpus.packets[ANSWER].items()
            if of == kind
            for packet in packets
        ]
        if fitting and self.rng.random() < 0.9:
            packet = bytearray(self.rng.choice(fitting))
        fields = unpack_fields(bytes(packet[HEADER_SIZE:]))
        fields[0] = (fields[0][0], pack_number(number) + pack_number(kind))
        packet[HEADER_SIZE:] = pack_fields(fields)
        return packet

    def _fields(self, fields: list[Field]) -> list[Field]:
        """``fields`` with one of them changed."""
        rng = self.rng
        if not fields:
            return [(rng.randrange(256), b"x")]
        at = rng.randrange(len(fields))
        type, value = fields[at]
        try:
            inner = unpack_fields(value)
        except FieldsError:
            inner = []
        what = rng.random()
        if inner and what < 0.8:
            fields[at] = (type, pack_fields(self._fields(inner)))
        elif what < 0.1:
            fields[at] = (rng.randrange(40), value)
        elif what < 0.2:
            del fields[at]
        elif what < 0.3:
            fields.insert(at, (rng.randrange(256), rng.randbytes(rng.randrange(20))))
        elif len(value) % 8 == 0 and value:
            number = rng.choice(EXTREMES) if rng.random() < 0.7 else rng.randrange(100)
            start = rng.randrange(0, len(value), 8)
            fields[at] = (
                type,
                value[:start] + number.to_bytes(8, "little") + value[start + 8 :],
            )
        else:
            fields[at] = (type, self._text(value))
        return fields

    def _text(self, value: bytes) -> bytes:
        """``value`` changed as a text."""
        rng = self.rng
        changed = bytearray(value)
        if changed and rng.random() < 0.6:
            changed[rng.randrange(len(changed))] = rng.choice(b'\n\0"\\ \xff#z')
        elif rng.random() < 0.5:
            changed = bytearray(rng.choice(QUEUES).encode())
        else:
            changed += rng.choice((b"\n", b"\0", b'"', b" ", b"x" * 5_000))
        return bytes(changed)

    def _aim(self, packet: bytearray) -> None:
        """Replace ids of jobs in ``packet`` with those of jobs that the victim has."""
        living = [job.id for job in self._mesh[0].node.store.jobs.values()]
        if not living or self.rng.random() < 0.2:
            return
        for old in self._ids:
            at = packet.find(old, HEADER_SIZE)
            if at >= 0:
                packet[at : at + ID_LENGTH] = self.rng.choice(living)

    def _damage(self, packet: bytearray) -> None:
        """Change a few bytes."""
        rng = self.rng
        start = HEADER_SIZE - 3 if rng.random() < 0.9 else 12  # the flags of a message come first
        at = rng.randrange(start, len(packet))
        what = rng.random()
        if what < 0.5:
            packet[at] ^= 1 << rng.randrange(8)
        elif what < 0.8:
            size = rng.choice((1, 2, 4, 8))
            number = rng.choice(EXTREMES) % (1 << 8 * size)
            packet[at : at + size] = number.to_bytes(size, rng.choice(("big", "little")))
        elif what < 0.9:
            del packet[max(at, HEADER_SIZE) :]
        else:
            packet[at:at] = rng.randbytes(rng.randrange(1, 9))


def _ids_in(packets: list[bytes]) -> Iterator[tuple[int, bytes]]:
    """Where in ``packets`` the first id of a job is, and the packet."""
    for packet in packets:
        at = packet.find(b"D-", HEADER_SIZE)
        if at >= 0:
            yield at, packet


# ---- verdicts -----------------------------------------------------------------------------------


def shared(node: Node) -> list[Any]:
    """What ``node`` shares with others: policies, schedules, bindings, pauses."""
    return [node.policies, node.ticks.schedules, node.topics.bindings, node.queue_pauses.known]


def _parse_policies(text: bytes, known: Any) -> list[str]:
    return policy_words.parse_file(text, known, {})


_FILES: list[tuple[Callable[[Any], Iterator[bytes]], Callable[[bytes, Any], list[str]]]] = [
    (lambda known: policy_words.format_file(known, {}), _parse_policies),
    (schedule_words.format_file, schedule_words.parse_file),
    (binding_words.format_file, binding_words.parse_file),
    (pause_words.format_file, pause_words.parse_file),
]


def dumped(node: Node) -> bytes:
    """The append-only file of ``node`` as a rewrite would make it."""
    node.start_dump()
    found: list[bytes] = []
    done = False
    while not done:
        records, done = node.dump_step(1000, 1 << 20)
        found += records
    return b"".join(found)


def started_again(bench: Bench, aof: bytes, directory: Path) -> Bench:
    """A node that starts with the files of ``bench``, of which ``aof`` is the append-only one.
    Raises AofError, or AssertionError, if it does not start."""
    path = directory / "aof"
    path.write_bytes(aof)
    again = Bench(7)
    again.now = again.node.now = bench.now
    for (dump, parse), known, new in zip(
        _FILES, shared(bench.node), shared(again.node), strict=True
    ):
        text = b"".join(dump(known))
        assert parse(text, new) == [], text
    again.node.queue_pauses.resume()
    for _ in Loader(str(path), again.node, False).steps():
        pass
    again.node.recovery.finish()
    return again


def told(bench: Bench) -> dict[bytes, tuple[object, ...]]:
    """What the node of ``bench`` would tell of the jobs that it holds."""
    node = bench.node
    found: dict[bytes, tuple[object, ...]] = {}
    for job in node.store.jobs.values():
        if job.state in (ACKED, WAIT_REPL) or job.etime * 1000 <= bench.now:
            continue
        trailer = node.store.trailers.of(job) if job.flags & FLAG_TRAILER else None
        # A trailer may also have what became of the job, which is not in this file.
        extra = (tuple(trailer.headers), trailer.group, trailer.key) if trailer else ((), b"", b"")
        found[job.id] = (job.queue, job.body, job.etime, job.retry, job.ctime, extra)
    return found


def changed(bench: Bench, again: Bench) -> dict[bytes, tuple[object, ...]]:
    """What the nodes of ``bench`` and of ``again``, which has started with the files of the first,
    would tell, where that differs. The file says that a job is delivered at most once by no longer
    having it."""
    before, after = told(bench), told(again)
    found: dict[bytes, tuple[object, ...]] = {}
    for id in before.keys() | after.keys():
        job = bench.node.store.jobs.get(id)
        delivered = job is not None and job.retry == 0 and job.flags & FLAG_DELIVERED
        if before.get(id) != after.get(id) and not (delivered and id not in after):
            found[id] = (before.get(id), after.get(id))
    return found


def look_at_all(bench: Bench) -> None:
    """Check that clients can read what the node of ``bench`` shows of all that it has."""
    bench("JSCAN", "COUNT", 1_000_000, "REPLY", "all")
    bench("QSCAN", "COUNT", 1_000_000)
    for words in ("QGET", "QKEYS", "CRON LIST", "BINDINGS FULL", "INFO all", "CLIENT LIST"):
        assert bench(*words.split()) is not None
    for queue in list(bench.node.queues.by_name):
        bench("QSTAT", queue)
    for job in list(bench.node.store.jobs.values()):
        assert bench.held(job.id)


def log_events(bench: Bench) -> None:
    """Check that each event that ``bench`` has noted is a line of JSON."""
    notes = bench.node.notes
    events, notes.events = notes.events, []
    for line in LineWriter(bench.node.id.decode()).lines(events).splitlines():
        event = json.loads(line)
        assert event["node"] == bench.node.id.decode()
        assert len(event.get("id", "x" * 40)) == 40


def works(bench: Bench, name: str) -> None:
    """Check that the node of ``bench`` takes changes and jobs."""
    assert bench("QSET", name, "ATTEMPTS", 3, "DEAD", "lost") == b"OK"
    assert bench("QGET", name) == [b"name", name.encode(), b"attempts", 3, b"dead", b"lost"]
    assert bench("CRON", "SET", name, "@every 1d", name, "body") == b"OK"
    assert bench("CRON", "GET", name) is not None
    assert bench("BIND", name, name) in (b"OK", "OK")
    assert bench("PAUSE", name, "out", "bcast") == b"out"
    assert bench("PAUSE", name, "none", "bcast") == b"none"
    id = bench.add(name, "body", "REPLICATE", 1)
    assert bench.get(name) == id
    assert bench("ACKJOB", id) == 1
