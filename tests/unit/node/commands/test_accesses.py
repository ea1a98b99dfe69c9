"""What commands say about the queues of a request, and that none of them touches another queue:
whatever a user with limited rights sends, nothing that belongs to others changes or is shown."""

import random
from collections.abc import Iterable

import pytest

from disque_trio.glob import glob_match
from disque_trio.node.core.shared.bindings import Binding, Bindings
from disque_trio.node.core.shared.makers import topic_access
from disque_trio.node.core.shared.versions import Entry
from disque_trio.respserver.access import ADD, FOUND, PATTERN, TAKE, grants
from disque_trio.respserver.client import Client
from tests.support.node_bench import Bench
from tests.support.restricted import client_of
from tests.unit.docs.test_rights import ABOUT_NO_QUEUE, rows

BOTH = TAKE | ADD
Rules = list[tuple[bytes, int]]


def needs(bench: Bench, *args: bytes | str | int) -> set[tuple[bytes, int]]:
    """Return what a request needs."""
    words = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
    command = bench.node.find_command(words[0])
    assert command is not None
    found, _ = command.accesses(bench.node, words)
    return {(name, need & ~FOUND) for name, need in found}


# ---- words that mean something other than they seem to ----------------------------------------


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        ("GETJOB TIMEOUT 5 COUNT 2 NOHANG FROM FROM x", "FROM x"),
        ("GETJOB COUNT FROM FROM x", "x"),
        ("getjob withcounters from x", "x"),
        ("CONSUME a CREDIT 5 WITHCOUNTERS CREDIT 7", "a CREDIT 5"),
        ("CONSUME STOP CREDIT 5", "STOP"),
        ("CONSUME ONLOSS CREDIT 5 ONLOSS retry", "ONLOSS"),
        ("CONSUME STOP", ""),
        ("JSCAN HEADER QUEUE a QUEUE b", "b"),
        ("JSCAN HEADER QUEUE a", "*"),
        ("JSCAN GROUP QUEUE", "*"),
        ("QSCAN MATCH a* MATCH b*", "b*"),
        ("QSCAN COUNT 5 MATCH MATCH", "MATCH"),
        ("REDRIVE a COUNT 5 TO b", "a b"),
        ("QSET a BACKOFF DEAD 5 DEAD b", "a b"),
        ("QSET a BACKOFF 1 2 DEAD b", "a b"),
        ("QSET a dead b", "a b"),
        ("QSET a DEAD  ATTEMPTS 0", "a"),
        ("CRON SET x @daily TZ tz CATCHUP q job", "q"),
        ("CRON SET x @daily q job CATCHUP TZ UTC", "q"),
        ("PAUSE q state bcast", "q"),
        ("BINDINGS MATCH QUEUE QUEUE q", "q"),
        ("BINDINGS MATCH QUEUE", "*"),
        ("UPDATEJOB D-x BODY QUEUE QUEUE q", "q"),
    ],
)
def test_queues_are_found_among_words_that_look_like_options(
    bench: Bench, request_: str, names: str
) -> None:
    found = needs(bench, *request_.split(" "))
    assert {name for name, _ in found} == set(names.encode().split())


def test_a_broadcast_of_the_present_state_is_a_pause(bench: Bench) -> None:
    assert needs(bench, "PAUSE", "q", "state", "bcast") == {(b"q", TAKE), (b"q", ADD)}
    assert needs(bench, "PAUSE", "q", "STATE") == {(b"q", 0)}


def test_a_result_that_is_an_id_is_not_acknowledged(bench: Bench) -> None:
    done, next = bench.add("mail"), bench.add("admin")
    assert needs(bench, "ACKJOB", done, "RESULT", next) == {(b"mail", TAKE)}
    assert needs(bench, "ACKJOB", done, next) == {(b"mail", TAKE), (b"admin", TAKE)}
    assert needs(bench, "NACK", done, "REASON", next) == {(b"mail", TAKE)}
    assert needs(bench, "UPDATEJOB", done, "BODY", next) == {(b"mail", TAKE), (b"mail", ADD)}


def test_a_job_belongs_to_the_queue_that_it_was_moved_to(bench: Bench) -> None:
    id = bench.add("mail")
    bench.send(bench.me, "QMOVE", "mail", "admin")
    bench.advance(1)
    assert needs(bench, "ACKJOB", id) == {(b"admin", TAKE)}


# ---- COMMAND GETKEYS ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        ("ADDJOB q job 0", ["q"]),
        ("getjob nohang from a b a", ["a", "b"]),
        ("QMOVE from to", ["from", "to"]),
        ("QSET mail.* DEAD dead", ["mail.*", "dead"]),
        ("ADDJOB @topic job 0", ["@topic"]),
        ("UPDATEJOB D-x QUEUE q", ["q"]),
    ],
)
def test_getkeys_tells_the_queues_of_a_request(
    bench: Bench, request_: str, names: list[str]
) -> None:
    assert bench("COMMAND", "GETKEYS", *request_.split()) == [name.encode() for name in names]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ("", "ERR wrong number of arguments for 'command|getkeys' command"),
        ("PING", "ERR wrong number of arguments for 'command|getkeys' command"),
        ("NOSUCH x", "ERR Invalid command specified"),
        ("QMOVE from", "ERR Invalid number of arguments specified for command"),
        ("PING x", "ERR The command has no key arguments"),
    ],
)
def test_getkeys_fails_as_in_redis(bench: Bench, request_: str, error: str) -> None:
    assert bench.error("COMMAND", "GETKEYS", *request_.split()) == error


def test_getkeys_does_not_tell_where_a_job_is(bench: Bench) -> None:
    id = bench.add("admin")
    assert "no key arguments" in bench.error("COMMAND", "GETKEYS", "ACKJOB", id)
    assert "no key arguments" in bench.error("COMMAND", "GETKEYS", "SHOW", id, "guess", "admin")


def test_getkeys_says_the_same_whatever_the_node_holds() -> None:
    knows, empty = Bench(), Bench()
    id = knows.add("payroll")
    knows("CRON", "SET", "nightly", "@daily", "payroll", "job")
    knows("QSET", "payroll", "ATTEMPTS", 3, "DEAD", "payroll.dead")
    knows("BIND", "news", "payroll")
    words = [id, b"nightly", b"payroll", b"payroll.dead", b"news", b"queue", b"get", b"set", b"1"]
    rng = random.Random(5)
    shown = 0
    for command in knows.node.commands.values():
        for _ in range(200 if command.needs else 0):
            request = [command.name.encode(), *rng.choices(words, k=rng.randint(1, 6))]
            asked = [b"COMMAND", b"GETKEYS", *request]
            for bench in (knows, empty):
                bench.send(bench.me, *asked)
            told = knows.raw(knows.me)
            assert told == empty.raw(empty.me), request
            shown += told.startswith(b"*")
    assert shown > 500


# ---- topics -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "name", "kind"),
    [
        ("news", "@news", 0),
        ("news.*", "@news.*", PATTERN),
        ("news.#", "@news*", PATTERN),
        ("news.*.de", "@news.*", PATTERN),
        ("#", "@*", PATTERN),
        ("#.de", "@*", PATTERN),
        ("*", "@*", PATTERN),
        ("ne*ws", "@ne*ws", 0),
        ("n[e.x.*", "@n*", PATTERN),
    ],
)
def test_a_pattern_of_topics_is_read_as_one_of_names(topic: str, name: str, kind: int) -> None:
    assert topic_access(topic.encode()) == (name.encode(), TAKE | kind)


def test_nobody_binds_more_topics_than_may_be_read() -> None:
    rng = random.Random(3)

    def word(choices: Iterable[str]) -> bytes:
        return ".".join(rng.choices(list(choices), k=rng.randrange(1, 4))).encode()

    granted = 0
    for _ in range(4_000):
        rule = b"@" + word(["a", "b", "a?"]) + rng.choice([b"", b"*", b".*"])
        topic = word(["a", "b", "*", "#"])
        if not grants(rule, TAKE, *topic_access(topic)):
            continue
        granted += 1
        bound = Bindings()
        bound.account(Entry(topic, Binding(topic, b"q"), 1, b"0" * 40, 0), 1)
        for _ in range(30):
            published = word(["a", "b", "c"])
            assert not bound.matching(published) or glob_match(rule, b"@" + published)
    assert granted > 100


def test_who_may_add_to_a_topic_needs_nothing_for_its_queues(bench: Bench) -> None:
    bench("BIND", "news", "mail.in")
    bench("BIND", "news", "admin")
    added = bench.ask(client_of(bench, "%W~@news"), "ADDJOB", "@news", "body", 0)
    assert isinstance(added, list)
    assert len(added) == 2
    for rule in ("~mail.*", "~news", "%R~@news"):
        client = client_of(bench, rule)
        assert "NOPERM" in bench.error_of(client, "ADDJOB", "@news", "body", 0)
    assert bench.number_queued("mail.in") == bench.number_queued("admin") == 1


def test_a_topic_is_bound_by_who_may_read_it_and_add_to_the_queue(bench: Bench) -> None:
    reader = client_of(bench, "%R~@news*", "%W~mail.*")
    assert bench.ask(reader, "BIND", "news.#", "mail.in") == b"OK"
    for topic, queue in (("news.#", "admin"), ("#", "mail.in"), ("secret", "mail.in")):
        assert "NOPERM" in bench.error_of(reader, "BIND", topic, queue)
        assert "NOPERM" in bench.error_of(reader, "UNBIND", topic, queue)
    assert "NOPERM" in bench.error_of(client_of(bench, "~mail.*"), "UNBIND", "news.#", "mail.in")


# ---- whatever is sent ---------------------------------------------------------------------------

MINE = b"mail.*"
BODY, SECRET = b"body-of-mine", b"body-of-theirs"
OPTIONS = (
    b"ASYNC DELAY 1 TTL RETRY 0 REPLICATE MAXLEN UNIQUE key FOR ANYWAY PRIORITY GROUP HEADERS AT "
    b"NOHANG TIMEOUT COUNT 5 WITHCOUNTERS WITHHEADERS PATTERN FROM CREDIT ONLOSS retry STOP RESULT "
    b"BCAST FORCE BODY QUEUE REASON DEAD TO MATCH REPLY all id STATE queued active MINAGE MAXAGE "
    b"MINRETURNS HEADER name BUSYLOOP MINLEN IMPORTRATE MAXIDLE FULL in out none state bcast "
    b"ATTEMPTS BACKOFF DEADTTL RATE 5/s ACTIVE GROUPS fair SET GET DEL PAUSE RESUME RUN LIST TZ "
    b"UTC CATCHUP @daily 60 1000"
).split()
NAMES = (
    b"mail.in mail.out mail.dead mail.new admin admin.x admin.dead mail.* mail* * admin.* ? @news "
    b"@secret news secret news.# # mailing nightly"
).split()


class World:
    """A node with jobs of two owners: ours are in queues ``mail.``, theirs in others."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.bench = bench = Bench(rng.getrandbits(32))
        for request in (
            "QSET mail.in DEAD mail.dead ATTEMPTS 3",
            "QSET admin.x DEAD mail.dead ATTEMPTS 3",
            "QSET admin.* DEAD admin.dead",
            "CRON SET mailing @daily mail.in tick",
            f"CRON SET nightly @daily admin {SECRET.decode()}",
            "BIND news mail.in",
            "BIND news admin",
            "BIND secret admin",
        ):
            bench(*request.split())
        bench.add("admin.dead", SECRET.decode())
        for queue in ("mail.in", "admin.x"):
            bench.add(queue, "goes where a policy sends it")
            bench("NACK", *bench.get_all(queue), "DEAD")
        self.ids: list[bytes] = []
        for queue in ("mail.in", "mail.out", "admin", "admin.x"):
            body = (BODY if queue.startswith("mail") else SECRET).decode()
            for _ in range(3):
                self.ids.append(bench.add(queue, body, "GROUP", queue, "HEADERS", 1, "name", body))
            self.ids.append(bench.add(queue, body, "DELAY", 3600))
            self.ids.append(bench.add(queue, body, "UNIQUE", "key"))
            assert bench.get_all(queue, count=2)
        self.ids += [b"D-" + b"a" * 8 + b"-" + b"b" * 24 + b"-05a1"]
        self.requests = [request for request, _ in rows("commands.md") if request[0] != b"CONSUME"]

    def client(self, rule: str) -> Client:
        client = client_of(self.bench, rule)
        self.bench.ask(client, "HELLO", 3)
        return client

    def name(self) -> bytes:
        return self.rng.choice(NAMES)

    def request(self) -> list[bytes]:
        """Return a request that may well have an effect."""
        rng = self.rng
        words = [self.word(word) for word in rng.choice(self.requests)]
        while rng.random() < 0.5:
            at = rng.randrange(1, len(words) + 1)
            new = rng.choice([*OPTIONS, *NAMES, *self.ids, b"", b"0", b"x"])
            kind = rng.randrange(3)
            if kind == 0:
                words.insert(at, new)
            elif kind == 1:
                words[min(at, len(words) - 1)] = new if len(words) > 1 else words[0]
            elif len(words) > 2:
                del words[at - 1 if at > 1 else 1]
        return words

    def word(self, word: bytes) -> bytes:
        """What a ``word`` of the table in docs stands for in a request."""
        if word == b"id":
            return self.rng.choice(self.ids)
        if word in (b"queue", b"one", b"two", b"from", b"to", b"dead", b"new.*", b"@topic"):
            return self.name()
        if word in (b"topic", b"news.*.de"):
            return self.rng.choice([b"news", b"secret", b"news.#", b"#"])
        if word in (b"schedule", b"name"):
            return self.rng.choice([b"nightly", b"mailing", b"other"])
        return b"@daily" if word == b"daily" else word

    def needs(self, request: list[bytes]) -> tuple[list[tuple[bytes, int]], str] | None:
        """Return what it needs, and why it is not served; None: it is not looked at."""
        command = self.bench.node.find_command(request[0])
        assert command is not None
        if not command.min_args <= len(request) <= command.max_args:
            return None
        return command.accesses(self.bench.node, request)

    def run(self, request: list[bytes], rule: str = "~*") -> bytes:
        """Return the reply to the ``request`` of a user with that rule, if any, and what is pushed
        after it."""
        bench = self.bench
        client = self.client(rule)
        bench.send(client, *request)
        for _ in range(20):
            if client.in_flight:
                bench.node.tick(bench.now)
        reply = bench.raw(client)
        bench.disconnect(client)
        return reply

    # ---- what there is ------------------------------------------------------------------------

    def jobs(self, mine: bool) -> dict[bytes, tuple[object, ...]]:
        """Return the jobs of one of the two owners."""
        return {
            job.id: (
                job.queue, job.body, job.state, job.qtime, job.etime, job.retry, job.nacks,
                job.deliveries,
            )
            for job in self.bench.node.store.jobs.values()
            if job.queue.startswith(b"mail.") == mine
        }  # fmt: skip

    def theirs(self) -> object:
        """Return everything that belongs to others."""
        node = self.bench.node
        return (
            self.jobs(False),
            {
                name: (queue.length, queue.paused, queue.jobs_in, queue.jobs_out)
                for name, queue in node.queues.by_name.items()
                if not name.startswith(b"mail.")
            },
            [
                (name, node.policies.named(name))
                for name in node.policies.entries
                if not name.startswith(b"mail.")
            ],
            [node.policies.of(name).fields() for name in (b"admin", b"admin.x", b"admin.dead")],
            [
                (name, entry.value)
                for name, entry in node.ticks.schedules.entries.items()
                if entry.value is not None and not entry.value.queue.startswith(b"mail.")
            ],
            sorted(
                one.name for one in node.topics.bindings.all() if not one.queue.startswith(b"mail.")
            ),
        )


RULES = {TAKE: "%R~mail.*", ADD: "%W~mail.*", BOTH: "~mail.*"}


def is_let(rules: Rules, accesses: list[tuple[bytes, int]]) -> bool:
    return all(any(grants(*rule, *access) for rule in rules) for access in accesses)


@pytest.mark.parametrize(
    "rights",
    [TAKE, ADD, pytest.param(BOTH, marks=pytest.mark.slow)],
    ids=["may take", "may add", "may do both"],
)
def test_nothing_of_others_is_changed_or_shown(rights: int) -> None:
    rng = random.Random(rights)
    rules = [(MINE, rights)]
    served: dict[bytes, int] = {}
    for _ in range(60):
        world = World(rng)
        for _ in range(60):
            request = world.request()
            needed = world.needs(request)
            if needed is None:
                continue
            accesses, problem = needed
            theirs = world.theirs()
            mine = world.jobs(True)
            reply = world.run(request, RULES[rights])
            assert reply.startswith(b"-NOPERM") != is_let(rules, accesses), request
            assert reply.startswith(b"-") or not problem, request
            assert world.theirs() == theirs, request
            assert SECRET not in reply, request
            assert not any(id in reply for id in world.jobs(False) if id not in request), request
            left = world.jobs(True)
            if not rights & TAKE:
                assert BODY not in reply, request
                assert {id: left.get(id) for id in mine} == mine, request
            if not rights & ADD:
                new = [job[0] for id, job in left.items() if id not in mine]
                assert not new or (set(new) == {b"mail.dead"} and request[0] == b"NACK"), request
                same = [job[:2] == mine[id][:2] for id, job in left.items() if id in mine]
                assert all(same), request
            if not reply.startswith(b"-"):
                served[request[0]] = served.get(request[0], 0) + 1
    assert len(served) >= {TAKE: 20, ADD: 15, BOTH: 26}[rights], served


def test_commands_about_no_queue_show_nothing_of_jobs() -> None:
    world = World(random.Random(1))
    node = world.bench.node
    for name, command in node.commands.items():
        if command.name in ABOUT_NO_QUEUE and "admin" not in command.flags:
            for words in ([], [b"LIST"], [b"GET", b"10"], [b"all"]):
                request = [name, *words]
                if command.min_args <= len(request) <= command.max_args:
                    theirs = world.theirs()
                    assert SECRET not in world.run(request), request
                    assert world.theirs() == theirs
