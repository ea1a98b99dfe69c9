"""What a command's syntax says of a request is what the command does with it: no request is served
whose queues were not known before."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_bananaq.commands.table import build_table as bananaq_table
from disque_trio.node.commands.table import build_table
from disque_trio.respserver.access import FOUND
from disque_trio.respserver.command import AnyCommand
from disque_trio.syntax import Part
from tests.support.client_grammar import KINDS, World
from tests.support.node_bench import Bench
from tests.support.wrong_words import WORLDS
from tests.support.wrong_words import World as AnyWorld

TABLES = {"node": build_table(), "bananaq": bananaq_table()}
_WORLDS: dict[str, AnyWorld] = {}  # those of requests that were refused
# Words that are options of some command, or names, numbers and ids.
QUEUES = [b"q", b"r", b"from", b"count"]
WORDS = sorted(
    {
        word.upper()
        for table in TABLES.values()
        for command in table.values()
        for word in command.syntax.replace("[", " ").replace("]", " ").replace("|", " ").split()
        if word.isupper()
    }
)
ABOUT_QUEUES = [
    (product, name)
    for product, table in TABLES.items()
    for name, command in table.items()
    if command.needs
]
# They say that words are missing, unknown or too many.
STRUCTURE = (
    b"-ERR syntax error", b"-ERR wrong number of", b"-ERR Wrong number of", b"-ERR invalid cursor",
    b"-ERR Unknown SLOWLOG", b"-ERR Wrong CLUSTER",
)  # fmt: skip
# They end the test, or have words of other commands as arguments.
EXCEPT = (
    "acl", "auth", "command", "cron", "debug", "discard", "exec", "hello", "loadjob", "monitor",
    "multi", "quit", "restart", "select", "shutdown", "watch",
)  # fmt: skip


def requests(command: AnyCommand) -> st.SearchStrategy[list[bytes]]:
    """Return the requests that the syntax of ``command`` describes."""
    forms = [_sequence(form.inner) for form in command.words.form.syntax]
    return st.one_of(forms).map(lambda words: [command.name.encode(), *words])


def _sequence(parts: tuple[Part, ...]) -> st.SearchStrategy[list[bytes]]:
    return st.tuples(*map(_part, parts)).map(
        lambda found: [word for some in found for word in some]
    )


def _joined(some: Iterable[list[bytes]]) -> list[bytes]:
    return [word for words in some for word in words]


def _part(part: Part) -> st.SearchStrategy[list[bytes]]:
    once = _once(part)
    if part.repeated:
        least = 0 if part.optional else 1
        return st.lists(once, min_size=least, max_size=3).map(_joined)
    return st.one_of(st.just([]), once) if part.optional else once


def _once(part: Part) -> st.SearchStrategy[list[bytes]]:
    if part.choices:
        return st.sampled_from([[choice.name.encode()] for choice in part.choices])
    if part.parts and part.token == "HEADERS":
        pairs = st.lists(st.sampled_from([b"a", b"COUNT"]), min_size=1, max_size=3)
        return pairs.map(lambda some: [b"HEADERS", b"%d" % len(some), *[b"x"] * (2 * len(some))])
    if part.parts:
        return _sequence(part.parts)
    if part.is_word:
        return st.just([part.name.encode()])
    return st.randoms(use_true_random=False).map(lambda rng: [_value(part.name, rng)])


def _value(name: str, rng: Any) -> bytes:
    if name not in KINDS:  # of bananaq
        return b"1"
    made = KINDS[name](rng, World())
    return made if isinstance(made, bytes) else made.encode()


@pytest.mark.parametrize("name", [name for name in TABLES["node"] if name.decode() not in EXCEPT])
@given(data=st.data())
def test_what_a_syntax_describes_is_not_a_wrong_request(name: bytes, data: st.DataObject) -> None:
    command = TABLES["node"][name]
    request = data.draw(requests(command))
    if not command.min_args <= len(request) <= command.max_args:
        return
    assert command.words.match(request).problem in ("", *_values(command, request))
    bench = Bench()
    client = bench.client()
    bench.send(client, *request)
    reply = bench.raw(client)
    assert not reply.startswith(STRUCTURE), request


def _values(command: AnyCommand, request: list[bytes]) -> list[str]:
    """Return the problem if it is that of a value, since the values are not always right."""
    problem = command.words.match(request).problem
    return [] if problem == command.words.wrong else [problem]


@pytest.mark.parametrize(("product", "name"), ABOUT_QUEUES)
@given(data=st.data())
def test_what_is_served_is_known_before(product: str, name: bytes, data: st.DataObject) -> None:
    """Or users with limited rights could do more than they may."""
    world = _WORLDS.get(product) or _WORLDS.setdefault(product, WORLDS[product]())
    own = [word.upper() for word in map(bytes.decode, [name])]
    words = st.sampled_from(
        [*QUEUES, b"mail.in", b"admin", b"1", b"0", b"retry", b"in", b"state", b"@daily",
         *world.ids.values(), *[word.encode() for word in (*WORDS, *own)]]
    )  # fmt: skip
    described = requests(TABLES[product][name]).map(lambda request: request[1:])
    some = st.lists(words, min_size=1, max_size=7)
    args = data.draw(st.one_of(some, st.tuples(described, some).map(lambda two: two[0] + two[1])))
    request = [name, *args]
    command = world.commands[name]
    if not command.min_args <= len(request) <= command.max_args:
        return
    problem = command.words.match(request).problem
    sure = set(command.needs) <= set(command.words.form.lead)
    reply = world.answer("~*", request)
    if not reply.startswith(b"-"):
        del _WORLDS[product]
        assert sure or not problem, request


@given(words=st.lists(st.sampled_from([
    *QUEUES, *QUEUES, b"?", b"FROM", b"FROM", b"NOHANG", b"TIMEOUT", b"COUNT", b"PATTERN", b"9",
    b"WITHCOUNTERS", b"withheaders", b"x",
]), min_size=1, max_size=8))  # fmt: skip
def test_getjob_takes_from_the_queues_that_are_known_before(words: list[bytes]) -> None:
    bench = Bench()
    for queue in QUEUES:
        bench.add(queue.decode())
    request = [b"GETJOB", b"COUNT", b"50", *words]
    client = bench.client()
    bench.send(client, *request)
    replies = bench.replies(client)
    accesses, problem = bench.node.commands[b"getjob"].accesses(bench.node, request)
    if not client.blocked and (replies[0] is None or isinstance(replies[0], list)):
        assert not problem
        taken = {entry[0] for entry in replies[0] or []}
        named = {name for name, _ in accesses}
        by_pattern = b"PATTERN" in [word.upper() for word in request[: -len(named)]]
        if by_pattern:
            assert all(any(fnmatchcase(one, name) for name in named) for one in taken)
        else:
            assert taken == named & set(QUEUES)
    elif client.blocked:
        assert not problem
        assert set(client.waits_for) == {name for name, _ in accesses}


@given(data=st.data())
def test_ackjob_ends_the_jobs_that_are_known_before(data: st.DataObject) -> None:
    bench = Bench()
    ids = [bench.add("q"), bench.add("r"), bench.add("s")]
    words = st.sampled_from([*ids, b"RESULT", b"result", b"x"])
    request = [b"ACKJOB", *data.draw(st.lists(words, min_size=1, max_size=5))]
    queues = [bench.show(id)[b"queue"] for id in ids]
    accesses, problem = bench.node.commands[b"ackjob"].accesses(bench.node, request)
    reply = bench.ask(bench.me, *request)
    if isinstance(reply, int):
        assert not problem
        ended = {queue for id, queue in zip(ids, queues, strict=True) if not bench.held(id)}
        assert ended == {name for name, need in accesses if need & FOUND}


@given(words=st.lists(st.sampled_from([
    b"q", b"RETRY", b"TTL", b"1", b"5", b"ASYNC", b"DELAY", b"AT", b"MAXLEN", b"UNIQUE", b"FOR",
    b"ANYWAY", b"GROUP", b"HEADERS", b"PRIORITY", b"REPLICATE",
]), max_size=8))  # fmt: skip
def test_addjob_adds_to_the_queue_that_is_known_before(words: list[bytes]) -> None:
    bench = Bench()
    request = [b"ADDJOB", b"mail", b"body", b"0", *words]
    command = bench.node.commands[b"addjob"]
    assert command.accesses(bench.node, request)[0] == [(b"mail", 2)]
    reply = bench.ask(bench.me, *request)
    if isinstance(reply, bytes):
        assert bench.show(reply)[b"queue"] == b"mail"
        assert not command.words.match(request).problem
