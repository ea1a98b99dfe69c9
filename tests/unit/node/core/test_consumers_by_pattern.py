"""CONSUME PATTERN: jobs of all queues that match pushed to clients."""

import pytest

from tests.support.consumers import consumer, pushed
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench
from tests.support.policies import set_policy


@pytest.fixture
def bench() -> Bench:
    return Bench(jitter=0)


def test_jobs_of_all_queues_that_match_are_pushed(bench: Bench) -> None:
    old = bench.add("mail.old")
    client = consumer(bench, "mail.*", "CREDIT", 3, "PATTERN")
    assert pushed(bench, client) == [old]
    bench.add("sms.1")
    new = [bench.add(f"mail.{number}") for number in range(3)]
    assert pushed(bench, client) == new[:2]
    assert bench("ACKJOB", new[0]) == 1
    assert pushed(bench, client) == new[2:]
    assert bench.number_queued("sms.1") == 1


def test_a_client_with_patterns_gets_no_more_than_its_credit_and_waits_again(bench: Bench) -> None:
    client = consumer(bench, "mail.*", "sms", "CREDIT", 1, "PATTERN")
    bench.advance(0)
    ids = [bench.add(name) for name in ("sms", "mail.1", "mail.1", "sms")]
    assert pushed(bench, client) == ids[:1]
    assert bench.node.deliveries.interests.by_client == {}
    got = ids[:1]
    for _ in range(3):
        assert bench("ACKJOB", got[-1]) == 1
        got += pushed(bench, client)
    assert sorted(got) == sorted(ids)
    bench("ACKJOB", got[-1])
    assert len(bench.node.deliveries.interests.by_client) == 1
    assert bench.ask(client, "CONSUME", "STOP") == 0
    assert bench.node.deliveries.interests.by_client == {}
    assert bench.node.consumers.by_client == {}


def test_by_pattern_clients_take_turns_pushed_or_not(bench: Bench) -> None:
    clients = [consumer(bench, "mail.*", "CREDIT", 100, "PATTERN") for _ in range(3)]
    bench.advance(0)
    for number in range(30):
        bench.add(f"mail.{number % 7}")
    assert [len(pushed(bench, client)) for client in clients] == [10, 10, 10]
    waiting = bench.client()
    bench.send(waiting, "GETJOB", "PATTERN", "FROM", "mail.*")
    for number in range(4):
        bench.add(f"mail.{number}")
    assert not waiting.blocked


def test_queues_of_dead_letters_can_be_left_out(bench: Bench) -> None:
    wanted = [bench.add("hooks.a"), bench.add("hooks.dead.b"), bench.add("hooks.a.dead")]
    client = consumer(bench, "hooks.*", "CREDIT", 5, "PATTERN", "NODEAD")
    assert pushed(bench, client) == wanted[:2]
    dead = bench.add("hooks.c.dead")
    other = consumer(bench, "hooks.*.dead", "CREDIT", 5, "PATTERN", "NODEAD")
    assert pushed(bench, client) == []
    assert pushed(bench, other) == [wanted[2], dead]
    everything = consumer(bench, "hooks.*", "CREDIT", 5, "PATTERN")
    bench.disconnect(other)
    bench.advance(0.001)
    assert pushed(bench, everything) == [wanted[2], dead]
    long = consumer(bench, "*", "CREDIT", 5, "PATTERN", "NODEAD")
    bench.add("x" * 2_000 + ".dead")
    kept = bench.add("x" * 2_000)
    assert pushed(bench, long) == [kept]


def test_patterns_stay_in_use_as_long_as_somebody_consumes(bench: Bench) -> None:
    client = consumer(bench, "mail.*", "CREDIT", 1, "PATTERN")
    first = bench.add("mail.1", "b", "RETRY", 1_000)
    assert pushed(bench, client) == [first]
    bench.advance(200)  # it waits for nothing meanwhile
    interests = bench.node.deliveries.interests
    assert list(interests.by_pattern) == [b"mail.*"]
    second = bench.add("mail.2")
    bench("ACKJOB", first)
    assert pushed(bench, client) == [second]
    bench.disconnect(client)
    bench.advance(200)
    assert interests.by_pattern == {}


def test_names_can_be_replaced_by_patterns_and_the_other_way_round(bench: Bench) -> None:
    client = consumer(bench)
    assert bench.ask(client, "CONSUME", "mail.*", "CREDIT", 9, "PATTERN") == b"OK"
    bench.add("q")
    id = bench.add("mail.1")
    assert pushed(bench, client) == [id]
    assert bench.ask(client, "CONSUME", "mail.*", "CREDIT", 9) == b"OK"
    bench.add("mail.1")
    literal = bench.add("mail.*")
    assert pushed(bench, client) == [literal]


def test_a_pause_and_a_limit_hold_back_what_comes_by_pattern(bench: Bench) -> None:
    set_policy(bench, name=b"mail.1", active=1)
    bench("PAUSE", "mail.2", "out")
    client = consumer(bench, "mail.*", "CREDIT", 9, "PATTERN")
    first, second = bench.add("mail.1"), bench.add("mail.1")
    paused = bench.add("mail.2")
    assert pushed(bench, client) == [first]
    bench("ACKJOB", first)
    assert pushed(bench, client) == [second]
    bench("PAUSE", "mail.2", "none")
    assert pushed(bench, client) == [paused]


def test_after_a_flush_patterns_are_still_wanted(bench: Bench) -> None:
    client = consumer(bench, "mail.*", "CREDIT", 1, "PATTERN")
    assert pushed(bench, client) == []
    bench("DEBUG", "FLUSHALL")
    id = bench.add("mail.1")
    assert pushed(bench, client) == [id]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("x" * 256, "CREDIT", 1, "PATTERN"), "1 to 255 bytes"),
        (("*a" * 33, "CREDIT", 1, "PATTERN"), "at most 32 stars"),
        (("q", "CREDIT", 1, "NODEAD"), "NODEAD needs PATTERN"),
    ],
)
def test_wrong_patterns_are_refused(bench: Bench, words: tuple[str | int, ...], text: str) -> None:
    client = bench.client()
    client.resp = 3
    assert text in bench.error_of(client, "CONSUME", *words)


def test_who_may_not_take_from_all_that_match_may_not_consume_the_pattern(bench: Bench) -> None:
    bench("ACL", "SETUSER", "worker", "on", "nopass", "+@all", "~mail.*")
    client = bench.client()
    client.resp = 3
    assert bench.ask(client, "AUTH", "worker", "any") == b"OK"
    assert "NOPERM" in bench.error_of(client, "CONSUME", "*", "CREDIT", 2, "PATTERN")
    assert bench.ask(client, "CONSUME", "mail.a*", "CREDIT", 2, "PATTERN") == b"OK"
    bench("ACL", "SETUSER", "worker", "resetkeys", "~mail.a")
    assert bench.host.closed == [client]


def test_other_nodes_give_jobs_to_those_that_consume_by_pattern() -> None:
    mesh = Mesh(2)
    client = consumer(mesh[0], "mail.*", "CREDIT", 5, "PATTERN", "NODEAD")
    mesh.advance(0.1)
    id = mesh[1].add("mail.1", "b", "REPLICATE", 1)
    mesh[1].add("mail.1.dead", "b", "REPLICATE", 1)
    mesh.advance(3)
    assert pushed(mesh[0], client) == [id]
    assert mesh[1].number_queued("mail.1.dead") == 1


def test_who_has_credit_left_gets_more_jobs_of_other_nodes_at_once() -> None:
    mesh = Mesh(2)
    client = consumer(mesh[0], "mail.*", "CREDIT", 5, "PATTERN")
    mesh.advance(0.1)
    for number in range(5):
        id = mesh[1].add(f"mail.{number % 2}", "b", "REPLICATE", 1)
        mesh.advance(0.02)
        assert pushed(mesh[0], client) == [id]
    mesh[1].add("mail.0", "b", "REPLICATE", 1)
    mesh.advance(3)
    assert pushed(mesh[0], client) == []
