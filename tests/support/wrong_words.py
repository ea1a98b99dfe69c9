"""Requests with right and wrong words, and what they are answered: recorded once, so that a change
of how commands read their words changes no reply.

``python -m tests.support.wrong_words`` records them again; then look at the difference.
"""

import re
from collections.abc import Iterator
from itertools import permutations
from typing import Final, Protocol

from disque_bananaq.commands.table import build_table as bananaq_table
from disque_bananaq.core.broker import Broker
from disque_bananaq.core.embedded import EmbeddedStore
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import AnyCommand
from disque_trio.respserver.host import Host
from disque_trio.respserver.monitor import without_password
from tests.support import ROOT
from tests.support.node_bench import START, Bench, BenchHost
from tests.support.restricted import client_of, reply_to

FILES: Final = {name: ROOT / "tests" / "data" / f"{name}-words.txt" for name in ("node", "bananaq")}
RULE: Final = "~mail.*"  # of the user with limited rights

# Right requests, which the others are made of.
NODE: Final = """\
ADDJOB mail.in job 0 RETRY 5 TTL 100 DELAY 1.5
ADDJOB mail.in job 0 MAXLEN 5 ASYNC PRIORITY 3 GROUP g
ADDJOB mail.in job 0 HEADERS 1 name value UNIQUE key FOR 5 ANYWAY
ADDJOB @news job 0 REPLICATE 1
GETJOB NOHANG TIMEOUT 5 COUNT 2 WITHCOUNTERS WITHHEADERS FROM mail.in mail.out
GETJOB NOHANG PATTERN FROM mail.* FROM
CONSUME mail.in CREDIT 5 WITHCOUNTERS WITHHEADERS ONLOSS retry
CONSUME STOP
CREDIT 5
ACKJOB $mine $other RESULT done
FASTACK $mine $other
CANCEL $mine $other
UPDATEJOB $mine BODY new DELAY 1 TTL 100 RETRY 5 QUEUE mail.out
UPDATEJOB $mine BODY QUEUE
WAITJOB 0 $mine $other
NACK $mine $other DELAY 1 REASON DEAD
NACK $mine DEAD REASON text
WORKING $mine
WORKING $mine PROGRESS 1 text
ENQUEUE $mine $other
PROMOTE $mine $other
DEQUEUE $mine $other
DELJOB BCAST FORCE $mine $other
SHOW $mine CLIENT MAXBODY 5
JSCAN 0 COUNT 5 BUSYLOOP QUEUE mail.in QUEUE mail.out STATE queued
JSCAN MINAGE 1 MAXAGE 2 MINRETURNS 3 QUEUE mail.in
JSCAN GROUP g HEADER name value TAKEN REPLY all QUEUE mail.in
LOADJOB text
REDRIVE mail.dead TO mail.in COUNT 5 MATCH $mine $other
QLEN mail.in
QOWNER mail.in mail.out
QPEEK mail.in 5 MAXBODY 5
QPURGE mail.in
QMOVE mail.in mail.out COUNT 5
QSTAT mail.in FULL
QTOP mail.in BY group COUNT 5
QSCAN 0 COUNT 5 BUSYLOOP MINLEN 1 MAXLEN 2 IMPORTRATE 0 MAXIDLE 4 MATCH mail.*
PAUSE mail.in in out bcast
PAUSE mail.in STATE all none
QSET mail.in ATTEMPTS 3 DEAD mail.dead BACKOFF 1 2 DEADTTL 5
QSET mail.* TTL 50 RETRY 5 REPLICATE 1 MAXLEN 5 MAXBYTES 100
QSET mail.in RATE 5/s BURST 5 ACTIVE 5 GROUPS fair
QGET mail.in
QKEYS mail.in 0 COUNT 5
QDELKEY mail.in key another
CRON SET name @daily TZ UTC CATCHUP mail.in job RETRY 5
CRON SET name @daily mail.in job GROUP TZ HEADERS 1 a b
CRON LIST
CRON GET mailing
CRON PAUSE mailing
CRON RESUME mailing
CRON RUN mailing
CRON DEL mailing
QDEL mail.in
BIND news.* mail.in
UNBIND news mail.in
BINDINGS QUEUE mail.in MATCH news FULL
HELLO 3 AUTH default password SETNAME name
DEBUG SLEEP 1
DEBUG RESTART 5
DEBUG ERROR text
RESTART
CLUSTER NODES
CLUSTER LEAVING no
CLUSTER RESET SOFT
CLUSTER FORGET 0000000000000000000000000000000000000001
CLUSTER MEET 127.0.0.1 7711 KEY key
CLUSTER EXPEL key
GETJOBS NOHANG COUNT 2 FROM mail.in
QUEUE $mine $other
SCANJOBS 0 COUNT 5 QUEUE mail.in
SCANQUEUES 0 COUNT 5 MATCH mail.*
AUTH default password
PING message
ECHO message
SELECT 0
QUIT
RESET
CLIENT LIST TYPE normal
CLIENT LIST ID 1 2
CLIENT LIST USER default
CLIENT INFO
CLIENT SETNAME name
CLIENT SETINFO lib-name name
CLIENT KILL ID 5 TYPE normal ADDR 10.0.0.1:1 USER default SKIPME yes
CLIENT PAUSE 0 WRITE
CLIENT UNPAUSE
CLIENT UNBLOCK 5 ERROR
CLIENT REPLY ON
CLIENT NO-EVICT on
ACL SETUSER u on >secret ~* +@all
ACL GETUSER u
ACL DELUSER u
ACL LOG 5
ACL CAT read
ACL GENPASS 64
ACL CHECK 10.0.0.1 default password
ACL DRYRUN default GETJOB FROM mail.in
ACL WHOAMI
INFO jobs
CONFIG GET maxmemory requirepass
CONFIG SET requirepass secret maxmemory 5
CONFIG REWRITE
COMMAND COUNT
COMMAND LIST FILTERBY ACLCAT read
COMMAND GETKEYS GETJOB FROM mail.in
TIME
SLOWLOG GET 5
LATENCY HISTORY event
LATENCY RESET event
MONITOR
SHUTDOWN REWRITE-AOF
BGREWRITEAOF
MULTI
EXEC
DISCARD
WATCH key
UNWATCH
"""

BANANAQ: Final = """\
QADD mail.in 600 contents NOBLOCK
QGET mail.in group EX 5 BLOCK 0
QGET mail.in group DEADLINE 5
QACK mail.in group $mine REDO
QACK mail.in own REDO
QWORKING mail.in group $mine EX 5
QNOTIFY group 0 mail.in mail.out
QNOTIFY 0
QFLUSH mail.in
QSTATUS mail.in mail.out GROUPS group other
QINFO mail.in GROUPS group
QREGISTER mail.in mail.out
QLPUSH mail.in own contents NOBLOCK
QRPUSH mail.in own contents
QRPOP mail.in EX 5
QLPEEK mail.in
QRPEEK mail.in
HELLO 3 AUTH default password SETNAME name
RESET
"""

_WRONG: Final = ("x", "-1", "", "admin")
_EMPTY: Final = '""'
_TO_PERMUTE: Final = 5  # words


def requests(right: str) -> Iterator[list[str]]:
    """The right requests, and those that differ from one of them in a few words."""
    seen: set[tuple[str, ...]] = set()
    for line in right.splitlines():
        for words in _near(line.split()):
            if tuple(words) not in seen:
                seen.add(tuple(words))
                yield words


def _near(words: list[str]) -> Iterator[list[str]]:
    yield words
    yield [word if word[0] == "$" else word.swapcase() for word in words]
    yield [*words, "FOO"]
    yield [*words, *words[1:]]
    for at in range(1, len(words)):
        yield words[:at]
        yield words[:at] + words[at + 1 :]
        yield [*words[: at + 1], *words[at:]]
        yield [*words[:at], "FOO", *words[at:]]
        for wrong in _WRONG:
            yield [*words[:at], wrong, *words[at + 1 :]]
        yield [*words[:at], "x", *words[at + 1 :], "FOO", "1"]
        yield [*words[:at], words[-1], *words[at + 1 :]]
        yield [words[0], *words[at:], *words[1:at]]
    if len(words) <= _TO_PERMUTE:
        yield from ([words[0], *some] for some in permutations(words[1:]))


class World(Protocol):
    """A server. A request that was served gets another one after it."""

    def answer(self, rule: str, words: list[bytes]) -> bytes:
        """The reply to a user with this rule."""

    commands: "dict[bytes, AnyCommand]"
    ids: dict[str, bytes]


class _WorldHost(BenchHost):
    def entropy(self, size: int) -> bytes:
        return b"x" * size


class NodeWorld:
    """A node with jobs of two owners."""

    def __init__(self) -> None:
        self.bench = bench = Bench(1)
        bench.host = bench.node.host = _WorldHost()
        for request in (
            "QSET mail.in DEAD mail.dead ATTEMPTS 3",
            "CRON SET mailing @daily mail.in tick",
            "CRON SET admin @daily admin tick",
            "BIND news mail.in",
        ):
            bench(*request.split())
        self.ids = {
            "$mine": bench.add("mail.in"),
            "$other": bench.add("mail.out", "body", "GROUP", "g"),
            "$theirs": bench.add("admin"),
        }
        bench.get("mail.in")
        self.commands = bench.node.commands
        self._clients = 1

    def answer(self, rule: str, words: list[bytes]) -> bytes:
        bench = self.bench
        client = client_of(bench, rule)
        bench.send(client, b"HELLO", b"3")
        bench.raw(client)
        bench.send(client, *words)
        for _ in range(20):
            if client.in_flight:
                bench.node.tick(bench.now)
        reply = bench.raw(client)
        if client in bench.host.connected:
            bench.disconnect(client)
        return reply


class BananaqWorld:
    """A bananaq with events of two owners."""

    def __init__(self) -> None:
        self.broker = Broker(EmbeddedStore(), bananaq_table(), Host(), lambda: 0)
        self.commands = self.broker.commands
        self.clients = 0
        self.ids: dict[str, bytes] = {}
        for queue in ("mail.in", "mail.out", "admin"):
            words = [b"QADD", queue.encode(), b"600", b"contents"]
            self.ids["$theirs" if queue == "admin" else "$mine"] = self.answer("~*", words)[6:-2]
            self.answer("~*", [b"QLPUSH", queue.encode(), b"own", b"contents"])

    def answer(self, rule: str, words: list[bytes]) -> bytes:
        self.clients += 1
        return reply_to(self.broker, Client(self.clients), rule, list(words), START)


RIGHT: Final = {"node": NODE, "bananaq": BANANAQ}
WORLDS: Final[dict[str, type[World]]] = {"node": NodeWorld, "bananaq": BananaqWorld}


def outcomes(product: str, asked: list[list[str]]) -> Iterator[str]:
    """What happens with each of the requests ``asked``: the replies to COMMAND GETKEYS, to a user
    with limited rights and to one without, and the words that MONITOR shows, if it hides some."""
    world = WORLDS[product]()
    for words in asked:
        request = [world.ids.get(word, word.encode()) for word in words]
        replies = [
            world.answer("~*", [b"COMMAND", b"GETKEYS", *request]),
            world.answer(RULE, request),
            world.answer("~*", request),
        ]
        told = [_brief(world, reply) for reply in replies]
        command = world.commands[request[0].lower()]
        shown = without_password(command, request, world.commands)
        if shown != request:
            told.append(" ".join(word.decode() for word in shown))
        if not all(reply.startswith(b"-") for reply in replies[1:]):
            world = WORLDS[product]()
        yield " | ".join(told)


def _brief(world: World, reply: bytes) -> str:
    """A reply as text: all of an error, and of a short reply without ids and times."""
    text = reply.decode("latin-1").replace("\r\n", " ").strip()
    for name, id in world.ids.items():
        text = text.replace(id.decode(), name)
    text = text.removeprefix("-ERR ")
    if reply.startswith(b"-") or (len(text) < 60 and not re.search("D-|id=|[0-9]{10}", text)):
        return text
    return f"{text[:2]}..."


def write(product: str) -> None:
    """Record all requests."""
    asked = list(requests(RIGHT[product]))
    by_outcome: dict[tuple[str, str], list[str]] = {}
    for words, outcome in zip(asked, outcomes(product, asked), strict=True):
        text = " ".join([word or _EMPTY for word in words])
        by_outcome.setdefault((words[0].lower(), outcome), []).append(text)
    lines = []
    for (_, outcome), same in by_outcome.items():
        lines += [outcome, *[f"    {words}" for words in same]]
    FILES[product].write_text("\n".join(lines) + "\n")


def recorded(product: str) -> Iterator[tuple[list[str], str]]:
    """The requests, and their outcomes."""
    outcome = ""
    for line in FILES[product].read_text().split("\n")[:-1]:
        if line.startswith("    "):
            yield [word if word != _EMPTY else "" for word in line.split()], outcome
        else:
            outcome = line


if __name__ == "__main__":
    for each in FILES:
        write(each)
