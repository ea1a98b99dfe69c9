"""GETJOB PATTERN: jobs of all queues whose names match, on one node."""

import random

import pytest

from disque_trio.glob import MAX_JOKERS, MAX_WANTED
from disque_trio.node.core.delivery import interests, patterns
from disque_trio.node.core.delivery.patterns import MAX_NAME
from disque_trio.respserver.client import Client
from disque_trio.respserver.slices import do_slice
from tests.support.node_bench import Bench
from tests.support.policies import set_policy


def needs_sources() -> None:
    """Skip the test where the constants of the node are compiled."""
    if not interests.__file__.endswith(".py"):
        pytest.skip("the constants of compiled code cannot be changed")


@pytest.fixture
def bench() -> Bench:
    return Bench(jitter=0)


def take(bench: Bench, *patterns: str | bytes, count: int = 1_000_000) -> list[bytes]:
    """Return the ids that GETJOB NOHANG PATTERN returns."""
    client = bench.client()
    bench.send(client, "GETJOB", "PATTERN", "NOHANG", "COUNT", count, "FROM", *patterns)
    for _ in range(1_000):
        if not client.blocked:
            break
        bench.node.tick(bench.now)
        if bench.node.batches.waiting:
            do_slice(bench.node, bench.now)
            bench.node.commit()
    (reply,) = bench.replies(client)
    return [] if reply is None else bench.ids(reply)


def wait(bench: Bench, *patterns: str, timeout: int = 0) -> Client:
    client = bench.client()
    bench.send(client, "GETJOB", "TIMEOUT", timeout, "PATTERN", "FROM", *(patterns or ("mail.*",)))
    assert client.blocked
    bench.advance(0)
    return client


def served(bench: Bench, *clients: Client) -> list[bytes | None]:
    """Return what each of ``clients`` got; None: it waits."""
    return [None if client.blocked else bench.got(client) for client in clients]


# ---- existing jobs ----------------------------------------------------------------------------


def test_jobs_come_from_all_queues_that_match(bench: Bench) -> None:
    ids = {bench.add(f"mail.{i}") for i in range(5)}
    bench.add("sms.1")
    bench.add("mail")
    assert set(take(bench, "mail.*")) == ids
    assert take(bench, "mail.*") == []
    assert bench.number_queued("sms.1") == bench.number_queued("mail") == 1


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*", "anything"),
        ("*", "x" * (MAX_NAME + 1)),
        ("mail", "mail"),
        ("m[ae]il.?", "meil.1"),
        ("*.urgent", "mail.urgent"),
        (r"mail.\*", "mail.*"),
        ("mail.[^a]*", "mail.b"),
    ],
)
def test_patterns_are_those_of_redis(bench: Bench, pattern: str, name: str) -> None:
    id = bench.add(name)
    assert take(bench, pattern) == [id]
    waiting = wait(bench, pattern)
    id = bench.add(name)
    assert bench.got(waiting) == id


@pytest.mark.parametrize("pattern", ["mail", "*mail", "m?l.1", "mail.[^1]", r"mail\.*x", "MAIL.*"])
def test_what_does_not_match_stays(bench: Bench, pattern: str) -> None:
    waiting = wait(bench, pattern)
    bench.add("mail.1")
    assert take(bench, pattern) == []
    assert waiting.blocked


def test_longer_names_match_stars_only(bench: Bench) -> None:
    bench.add("x" * (MAX_NAME + 1))
    assert take(bench, "x*") == []
    assert len(take(bench, "**")) == 1


def test_queues_of_a_pattern_are_served_in_turn(bench: Bench) -> None:
    busy = [bench.add("mail.busy") for _ in range(10)]
    quiet = [bench.add("mail.quiet") for _ in range(2)]
    got = [take(bench, "mail.*", count=1)[0] for _ in range(4)]
    assert sorted(got) == sorted([*busy[:2], *quiet])
    assert take(bench, "mail.*") == busy[2:]


def test_patterns_give_one_job_each_from_left_to_right(bench: Bench) -> None:
    a = [bench.add("a.1"), bench.add("a.2"), bench.add("a.3")]
    b = [bench.add("b.1")]
    got = take(bench, "b.*", "a.*", count=3)
    assert got[0] == b[0]
    assert set(got[1:]) < set(a)
    assert len(take(bench, "a.*", "b.*")) == 1


def test_options_come_in_any_order_before_from(bench: Bench) -> None:
    bench.add("mail.1", "b", "PRIORITY", 3, "HEADERS", 1, "h", "v")
    reply = bench(
        *("GETJOB", "WITHHEADERS", "PATTERN", "WITHCOUNTERS", "TIMEOUT", 5, "COUNT", 2),
        *("NOHANG", "FROM", "mail.*"),
    )
    assert isinstance(reply, list)
    assert reply[0][0] == b"mail.1"
    assert b"headers" in reply[0]
    assert b"nacks" in reply[0]


def test_without_the_word_stars_are_characters(bench: Bench) -> None:
    bench.add("mail.1")
    assert bench.get("mail.*") is None
    id = bench.add("mail.*")
    assert bench.get("mail.*") == id
    assert "mail.*" in [name.decode() for name in bench.node.queues.by_name]


def test_priorities_hold_within_a_queue(bench: Bench) -> None:
    low = bench.add("mail.1", "b", "PRIORITY", 1)
    high = bench.add("mail.1", "b", "PRIORITY", 7)
    assert take(bench, "mail.*") == [high, low]


# ---- waiting clients --------------------------------------------------------------------------


def test_clients_that_wait_are_woken_by_queues_old_and_new(bench: Bench) -> None:
    bench.add("mail.old")
    take(bench, "mail.*")
    first, second, third = wait(bench), wait(bench), wait(bench)
    a = bench.add("mail.old")
    b = bench.add("mail.new")
    bench.add("sms")
    assert served(bench, first, second, third) == [a, b, None]
    assert bench.info("clients")["blocked_clients"] == "1"


def test_a_client_waits_by_several_patterns(bench: Bench) -> None:
    waiting = wait(bench, "sms.*", "mail.*", "mail.*")
    id = bench.add("mail.1")
    assert bench.got(waiting) == id
    bench.add("sms.1")
    assert bench.number_queued("sms.1") == 1


def test_a_wait_ends_in_time(bench: Bench) -> None:
    waiting = wait(bench, timeout=500)
    bench.advance(0.499)
    assert waiting.blocked
    bench.advance(0.002)
    assert bench.replies(waiting) == [None]
    bench.add("mail.1")
    assert bench.number_queued("mail.1") == 1


def test_a_client_that_goes_gets_nothing(bench: Bench) -> None:
    first, second = wait(bench), wait(bench)
    bench.disconnect(first)
    id = bench.add("mail.1")
    assert bench.got(second) == id


def test_clients_that_wait_for_the_queue_itself_come_first(bench: Bench) -> None:
    by_pattern = wait(bench)
    by_name = bench.block("mail.1")
    first, second = bench.add("mail.1"), bench.add("mail.1")
    assert served(bench, by_pattern, by_name) == [second, first]


def test_of_several_patterns_who_came_first_is_served_first(bench: Bench) -> None:
    first, second, third = wait(bench, "mail.*"), wait(bench, "*"), wait(bench, "mail.*")
    ids = [bench.add("mail.1") for _ in range(3)]
    assert served(bench, first, second, third) == ids
    second, first = wait(bench, "*"), wait(bench, "mail.*")
    ids = [bench.add("mail.1") for _ in range(2)]
    assert served(bench, second, first) == ids


@pytest.mark.parametrize("come_back", ["NACK", "ENQUEUE"])
def test_jobs_that_come_back_go_to_those_who_wait(bench: Bench, come_back: str) -> None:
    id = bench.add("mail.1")
    take(bench, "mail.*")
    waiting = wait(bench)
    bench(come_back, id)
    assert bench.got(waiting) == id


def test_delayed_moved_and_retried_jobs_wake_those_who_wait(bench: Bench) -> None:
    delayed = bench.add("mail.1", "b", "DELAY", 5)
    waiting = wait(bench)
    bench.advance(6)
    assert bench.got(waiting) == delayed
    waiting = wait(bench)
    moved = bench.add("sms")
    bench.send(bench.me, "QMOVE", "sms", "mail.2")
    bench.advance(0)
    assert bench.replies(bench.me) == [1]
    assert bench.got(waiting) == moved
    waiting = wait(bench)
    bench.advance(400)
    assert bench.got(waiting) in (delayed, moved)


def test_jobs_go_to_clients_by_name_and_by_pattern_in_turn(bench: Bench) -> None:
    set_policy(bench, name=b"mail.1", active=1)
    held = bench.add("mail.1")
    take(bench, "mail.*")
    bench.add("mail.1")
    clients = [
        client for _ in range(2) for client in (bench.block("mail.1"), wait(bench, timeout=0))
    ]
    for client in clients:
        bench.add("mail.1")
        bench("ACKJOB", held)
        held = bench.got(client)


# ---- what holds jobs back ---------------------------------------------------------------------


def test_a_paused_queue_gives_nothing_until_it_goes_on(bench: Bench) -> None:
    bench("PAUSE", "mail.1", "out")
    first = bench.add("mail.1")
    other = bench.add("mail.2")
    assert take(bench, "mail.*") == [other]
    waiting, later = wait(bench), wait(bench)
    second = bench.add("mail.1")
    bench.advance(1)
    assert waiting.blocked
    bench("PAUSE", "mail.1", "none")
    assert served(bench, waiting, later) == [first, second]


def test_a_queue_at_its_limit_gives_the_next_job_when_it_may(bench: Bench) -> None:
    set_policy(bench, name=b"mail.*", active=1)
    first, second = bench.add("mail.1"), bench.add("mail.1")
    other = bench.add("mail.2")
    assert set(take(bench, "mail.*")) == {first, other}
    waiting = wait(bench)
    bench("ACKJOB", first)
    assert bench.got(waiting) == second
    assert bench.info("queues")["queues_held_by_active"] == "0"


def test_a_rate_lets_jobs_go_one_after_the_other(bench: Bench) -> None:
    set_policy(bench, name=b"mail.1", rate=(1, 1), burst=1)
    ids = [bench.add("mail.1") for _ in range(3)]
    assert take(bench, "mail.*") == ids[:1]
    waiting = [wait(bench), wait(bench)]
    assert bench.info("queues")["queues_held_by_rate"] == "1"
    bench.advance(1.1)
    assert served(bench, *waiting) == [ids[1], None]
    bench.advance(1)
    assert bench.got(waiting[1]) == ids[2]


def test_groups_hold_back_their_next_job(bench: Bench) -> None:
    set_policy(bench, name=b"mail.*", groups="fifo")
    first, second = (bench.add("mail.1", "b", "GROUP", "g") for _ in range(2))
    assert take(bench, "mail.*") == [first]
    waiting = wait(bench)
    bench("ACKJOB", first)
    assert bench.got(waiting) == second


def test_clients_by_name_are_not_kept_waiting_by_patterns_that_are_over(bench: Bench) -> None:
    set_policy(bench, name=b"mail.1", active=1)
    first, second = bench.add("mail.1"), bench.add("mail.1")
    assert take(bench, "mail.*") == [first]
    waiting = wait(bench, timeout=100)
    bench.advance(1)
    assert bench.replies(waiting) == [None]
    bench("ACKJOB", first)
    assert bench.get("mail.1") == second


def test_a_node_that_leaves_lets_nobody_wait(bench: Bench) -> None:
    waiting = wait(bench)
    bench.node.now = bench.now
    bench.node.set_leaving(True)
    (reply,) = bench.replies(waiting)
    assert str(reply).startswith("LEAVING")
    assert bench.error("GETJOB", "PATTERN", "FROM", "mail.*").startswith("LEAVING")


def test_in_a_group_of_commands_nobody_waits(bench: Bench) -> None:
    bench("MULTI")
    bench("ADDJOB", "mail.1", "b", 0)
    bench("GETJOB", "PATTERN", "FROM", "mail.*")
    bench("GETJOB", "PATTERN", "FROM", "mail.*")
    added, got, none = bench("EXEC")  # type: ignore[misc]
    assert bench.ids(got) == [added]
    assert none is None


def test_a_flush_ends_waits_and_patterns_go_on(bench: Bench) -> None:
    bench("PAUSE", "mail.1", "out")
    bench.add("mail.1")
    waiting = wait(bench)
    bench("DEBUG", "FLUSHALL")
    assert bench.replies(waiting) == [None]
    id = bench.add("mail.1")
    assert take(bench, "mail.*") == [id]


# ---- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["PATTERN"],
        ["PATTERN", "FROM"],
        ["NOHANG", "PATTERN", "FROM"],
        ["PATTERN", "mail.*"],
        ["FROM"],
        ["PATTERN", "PATTERNS", "FROM", "q"],
    ],
)
def test_words_that_are_missing_or_wrong_are_errors(bench: Bench, words: list[str]) -> None:
    assert bench.error("GETJOB", *words).startswith("ERR ")


@pytest.mark.parametrize(
    "patterns",
    [
        [""],
        ["mail.*", ""],
        ["x" * (MAX_WANTED + 1)],
        ["*a" * (MAX_JOKERS + 1)],
        ["[a]" * (MAX_JOKERS + 1)],
        [f"{i}.*" for i in range(1_001)],
    ],
)
def test_patterns_that_cost_too_much_are_errors(bench: Bench, patterns: list[str]) -> None:
    bench.add("mail.1")
    assert bench.error("GETJOB", "NOHANG", "PATTERN", "FROM", *patterns).startswith("ERR ")
    assert bench.node.deliveries.interests.by_pattern == {}
    assert bench.number_queued("mail.1") == 1


def test_a_thousand_patterns_can_be_used(bench: Bench) -> None:
    id = bench.add("999.1")
    patterns = [f"{i}.*" for i in range(1_000)]
    assert take(bench, *patterns) == [id]
    waiting = wait(bench, *patterns)
    id = bench.add("500.x")
    assert bench.got(waiting) == id


def test_more_than_a_node_has_room_for_is_an_error(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_sources()
    monkeypatch.setattr(interests, "MAX_INTERESTS", 3)
    kept = wait(bench, "a.*", "b.*")
    assert take(bench, "c.*") == []
    assert take(bench, "d.*") == []  # nobody uses c.* any longer
    bench.advance(1)
    assert "patterns" in bench.error("GETJOB", "NOHANG", "PATTERN", "FROM", "e.*", "f.*")
    id = bench.add("a.1")
    assert bench.got(kept) == id


# ---- many -------------------------------------------------------------------------------------


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_sources()
    monkeypatch.setattr(interests, "SLICE", 4)
    monkeypatch.setattr(interests, "LOOKS", 3)
    monkeypatch.setattr(patterns, "_READING", 2)


@pytest.mark.usefixtures("small_slices")
def test_what_takes_many_turns_to_find_is_found(bench: Bench) -> None:
    for i in range(60):
        bench.add(f"sms.{i}")
    id = bench.add("mail.1")
    client = bench.client()
    bench.send(client, "GETJOB", "NOHANG", "PATTERN", "FROM", "mail.*")
    assert client.blocked
    bench.advance(0)
    assert bench.got(client) == id
    assert take(bench, "mail.*") == []


def test_a_search_that_begins_in_the_middle_of_another_misses_nothing(bench: Bench) -> None:
    ids = {bench.add(f"mail.{i}") for i in range(4_000)}  # some in each shard
    first = bench.client()
    bench.send(first, "GETJOB", "PATTERN", "FROM", "sms.*")
    finder = bench.node.deliveries.interests._ready
    while not finder._names:
        finder.work(1)
    assert set(take(bench, "mail.*")) == ids


@pytest.mark.usefixtures("small_slices")
def test_paused_queues_do_not_hide_the_others(bench: Bench) -> None:
    for i in range(30):
        bench.add(f"mail.{i}")
        bench("PAUSE", f"mail.{i}", "out")
    assert take(bench, "mail.*") == []
    id = bench.add("mail.x")
    assert take(bench, "mail.*") == [id]
    waiting = wait(bench)
    bench("PAUSE", "mail.7", "none")
    assert len(served(bench, waiting)) == 1


def test_queues_that_were_emptied_do_not_make_a_turn_long(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_sources()
    monkeypatch.setattr(interests, "LOOKS", 3)
    for i in range(100):
        bench.add(f"mail.{i}", "once", "RETRY", 0)
    assert len(take(bench, "mail.*", count=1)) == 1
    for i in range(100):
        bench.get(f"mail.{i}")
    client = bench.client()
    bench.send(client, "GETJOB", "NOHANG", "PATTERN", "FROM", "mail.*")
    assert client.blocked
    bench.advance(0.01)
    assert bench.replies(client) == [None]
    for i in range(100):
        bench.add(f"mail.{i}")
    ids: set[bytes] = set()
    while found := take(bench, "mail.*"):
        ids.update(found)
    assert len(ids) == 100


def test_patterns_that_nobody_uses_are_forgotten(bench: Bench) -> None:
    bench.add("mail.1")
    assert len(take(bench, "sms.*", "mail.*")) == 1
    bench.add("mail.1")
    waiting = wait(bench, "chat.*", timeout=1_000)
    bench.advance(100)
    assert bench.replies(waiting) == [None]
    assert bench.info("clients")["patterns"] == "0"
    assert bench.node.queues.interests is None
    queue = bench.node.queues.by_name[b"mail.1"]
    assert queue.found_by == ()
    assert not queue.waiters
    assert bench.node.rpc.timer.at == 0


def test_queues_that_have_no_jobs_are_forgotten_though_somebody_waits(bench: Bench) -> None:
    waiting = wait(bench)
    for i in range(20):
        bench("PAUSE", f"mail.{i}", "out")
        bench("DELJOB", bench.add(f"mail.{i}"))
        bench("PAUSE", f"mail.{i}", "none")
    bench.advance(1_000)
    bench.evict_idle_queues()
    assert bench.node.queues.by_name == {}
    assert waiting.blocked


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.usefixtures("small_slices")
def test_nobody_waits_while_there_is_a_job_for_him(bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    names = ["a.1", "a.2", "b.1", "b.2", "a.b"]
    patterns = ["a.*", "b.*", "*", "*.1", "?.b"]
    matching = {p: [n for n in names if _matches(p, n)] for p in patterns}
    set_policy(bench, name=b"b.2", active=2)
    waiting: dict[Client, list[str]] = {}
    held: list[bytes] = []
    paused: set[str] = set()
    for _ in range(300):
        step = rng.random()
        if step < 0.35:
            bench.add(rng.choice(names), "b", "RETRY", 30)
        elif step < 0.5:
            wanted = rng.sample(patterns, rng.randint(1, 2))
            client = bench.client()
            timeout = rng.choice([0, 200])
            bench.send(client, "GETJOB", "TIMEOUT", timeout, "PATTERN", "FROM", *wanted)
            waiting[client] = wanted
        elif step < 0.6:
            held += take(bench, rng.choice(patterns), count=rng.randint(1, 3))
        elif step < 0.7 and held:
            bench(rng.choice(["ACKJOB", "NACK"]), held.pop())
        elif step < 0.8:
            name = rng.choice(names)
            paused ^= {name}
            bench("PAUSE", name, "out" if name in paused else "none")
        elif step < 0.85 and waiting:
            client = rng.choice(list(waiting))
            del waiting[client]
            bench.disconnect(client)
        else:
            bench.advance(rng.choice([0.05, 0.3, 20, 70]))
        bench.advance(0)
        for client in [client for client in waiting if not client.blocked]:
            wanted = waiting.pop(client)
            (reply,) = bench.replies(client)
            if reply is not None:
                ((name, id, _),) = reply  # type: ignore[attr-defined]
                assert any(name.decode() in matching[pattern] for pattern in wanted)
                assert name.decode() not in paused
                held.append(id)
        for wanted in waiting.values():
            for name in {name for pattern in wanted for name in matching[pattern]}:
                limit = bench.node.limits.by_name.get(name.encode())
                busy = limit is not None and len(limit.in_hand) == 2
                assert not bench.number_queued(name) or name in paused or busy


def _matches(pattern: str, name: str) -> bool:
    return {"a.*": name[:2] == "a.", "b.*": name[:2] == "b.", "*": True}.get(
        pattern, name.endswith(pattern[-2:])
    )
