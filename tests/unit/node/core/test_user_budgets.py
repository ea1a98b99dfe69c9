"""Budgets of users for what is in queues: what counts, and what is refused."""

import random
from collections.abc import Callable

import hiredis
import pytest

from disque_trio.glob import Glob
from disque_trio.node.core.jobs.job import JOB_OVERHEAD
from disque_trio.node.core.jobs.outcomes import size_of
from disque_trio.node.core.jobs.uniques import counted
from disque_trio.node.core.queues.queues import taken_by
from disque_trio.node.core.user_budgets import LOOKS
from disque_trio.protocol.keyrecord import ADDED
from disque_trio.respserver.client import Client
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

KB = 1024
MB = 1024 * KB
GONE = b"D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1"  # a job that no node knows


def declare(bench: Bench, *rules: str, name: str = "shop") -> Client:
    """A client of the user ``name``, who may do everything to its own queues, with ``rules``."""
    bench("ACL", "SETUSER", name, "on", "nopass", f"~{name}.*", "+@all", *rules)
    client = bench.client()
    assert bench.ask(client, "AUTH", name, "x") == b"OK"
    return client


def allowed(bench: Bench, client: Client, *words: str | int | bytes) -> bool:
    return not isinstance(bench.ask(client, *words), hiredis.ReplyError)


def sums(bench: Bench, name: str = "shop") -> dict[str, int]:
    return bench.node.budgets.used_by(bench.node.users.by_name[name.encode()])


def added_up(bench: Bench, prefix: bytes = b"shop.") -> dict[str, int]:
    """What ``sums`` should be, added up one by one."""
    node = bench.node
    store = node.store
    held = [admission.job for admission in node.admissions.held.values()]
    jobs = [job for job in [*store.jobs.values(), *held] if job.queue.startswith(prefix)]
    trailers = [store.trailers.of(job) for job in jobs]
    keys = [entry for entry in store.uniques.entries.values() if entry.queue.startswith(prefix)]
    memory = sum(JOB_OVERHEAD + len(job.body or b"") for job in jobs)
    memory += sum(trailer.counted for trailer in trailers if trailer is not None)
    results = [outcome for outcome in store.outcomes.kept.by_id.values() if outcome.queue]
    memory += sum(size_of(result) for result in results if result.queue.startswith(prefix))
    queues = [queue for queue in store.queues.index.values() if queue.name.startswith(prefix)]
    memory += sum(taken_by(queue.name) for queue in queues if queue.paused)
    return {
        "memory": memory + sum(map(counted, keys)),
        "keys": len(keys),
        "schedules": sum(s.queue.startswith(prefix) for s in node.ticks.schedules.all()),
        "bindings": sum(b.queue.startswith(prefix) for b in node.topics.bindings.all()),
        "policies": sum(
            found.name.startswith(prefix)
            for known in (node.policies, node.queue_pauses.known)
            for found in known.all()
        ),
    }


# ---- memory -------------------------------------------------------------------------------------


def test_jobs_beyond_the_memory_of_a_user_are_refused(bench: Bench) -> None:
    shop = declare(bench, "%maxmemory=100kb")
    body = "x" * (50 * KB)
    first = bench.ask(shop, "ADDJOB", "shop.a", body, 0)
    why = "OOM user shop may hold 100kb of jobs in its queues (%maxmemory), 50.5kb are held"
    assert bench.error_of(shop, "ADDJOB", "shop.b", body, 0) == why
    assert allowed(bench, shop, "ADDJOB", "shop.b", "small", 0)
    assert bench.add("shop.a", body)  # another user
    assert bench.error_of(shop, "ADDJOB", "shop.b", "small", 0).startswith("OOM user shop")
    assert isinstance(first, bytes)
    bench("ACKJOB", first)
    assert allowed(bench, shop, "ADDJOB", "shop.b", "small", 0)


def test_what_does_not_wait_in_a_queue_counts_as_well(bench: Bench) -> None:
    shop = declare(bench, "%maxmemory=100kb")
    body = "x" * (30 * KB)
    bench.ask(shop, "ADDJOB", "shop.a", body, 0, "DELAY", 100)
    bench.ask(shop, "ADDJOB", "shop.a", body, 0)
    bench.get("shop.a")
    headers = ("HEADERS", 1, "h", "v" * (30 * KB))
    assert allowed(bench, shop, "ADDJOB", "shop.a", "b", 0, *headers)
    assert bench.error_of(shop, "ADDJOB", "shop.a", body, 0).startswith("OOM")
    assert bench.error_of(shop, "ADDJOB", "shop.a", "b", 0, *headers).startswith("OOM")
    assert sums(bench) == added_up(bench)


@pytest.mark.parametrize("bcast", [(), ("BCAST",)])
def test_paused_queues_count_since_they_stay(bench: Bench, bcast: tuple[str, ...]) -> None:
    shop = declare(bench, "%maxmemory=10kb")
    paused = 0
    while bench.ask(shop, "PAUSE", f"shop.{paused}", "in", *bcast) == b"in":
        paused += 1
    assert 5 < paused < 13
    assert str(bench.ask(shop, "PAUSE", "shop.new", "out", *bcast)).startswith("OOM user shop may")
    assert bench.ask(shop, "PAUSE", "shop.0", "out", *bcast) == b"out"
    assert sums(bench) == added_up(bench)
    assert bench.ask(shop, "PAUSE", "shop.0", "none", *bcast) == b"none"
    assert bench.ask(shop, "PAUSE", "shop.new", "out", *bcast) == b"out"
    assert sums(bench) == added_up(bench)


def test_results_count_and_those_that_do_not_fit_are_not_kept(bench: Bench) -> None:
    bench("CONFIG", "SET", "result-ttl", 60)
    shop = declare(bench, "%maxmemory=10kb")
    other = bench.add("other", "x")
    bench("ACKJOB", other, "RESULT", "o" * 9 * KB)
    ids = [bench.ask(shop, "ADDJOB", "shop.q", "x", 0) for _ in range(4)]
    for id in ids:
        assert bench.ask(shop, "ACKJOB", id, "RESULT", "r" * 3 * KB) == 1
    assert sums(bench) == added_up(bench)
    found = bench("WAITJOB", 10, *ids, other)
    results = [len(result or b"") for _, state, result in found if state == b"acked"]
    assert results == [3 * KB, 3 * KB, 0, 0, 9 * KB]
    assert str(bench.ask(shop, "ADDJOB", "shop.q", "x" * 3 * KB, 0)).startswith("OOM user shop")
    bench.advance(61)
    bench.node.cron(bench.now)
    assert sums(bench) == added_up(bench)
    assert sums(bench)["memory"] == 0


def test_other_queues_and_users_do_not_count(bench: Bench) -> None:
    shop = declare(bench, "%maxmemory=100kb")
    mail = declare(bench, name="mail")
    body = "x" * (80 * KB)
    assert allowed(bench, mail, "ADDJOB", "mail.a", body, 0)
    assert bench.add("other", body)
    assert allowed(bench, shop, "ADDJOB", "shop.a", body, 0)
    assert allowed(bench, mail, "ADDJOB", "mail.a", body, 0)
    assert sums(bench, "mail") == {}


def test_a_queue_of_two_users_counts_for_both(bench: Bench) -> None:
    shop = declare(bench, "%maxmemory=100kb")
    mail = declare(bench, "%maxmemory=100kb", "~shop.shared", name="mail")
    assert allowed(bench, shop, "ADDJOB", "shop.shared", "x" * (80 * KB), 0)
    assert bench.error_of(mail, "ADDJOB", "mail.a", "x" * (80 * KB), 0).startswith("OOM user mail")


def test_who_may_only_take_holds_nothing(bench: Bench) -> None:
    declare(bench, "%maxmemory=100kb", "resetkeys", "%R~shop.*")
    bench.add("shop.a")
    assert sums(bench)["memory"] == 0


def test_selectors_count(bench: Bench) -> None:
    declare(bench, "%maxmemory=100kb", "(%W~extra +addjob)")
    bench.add("extra")
    assert sums(bench)["memory"] == JOB_OVERHEAD + 4


# ---- other ways to add --------------------------------------------------------------------------


def test_a_job_does_not_grow_beyond_the_memory(bench: Bench) -> None:
    shop = declare(bench, "%maxmemory=100kb")
    id = bench.ask(shop, "ADDJOB", "shop.a", "b", 0)
    assert isinstance(id, bytes)
    assert allowed(bench, shop, "UPDATEJOB", id, "BODY", "x" * (60 * KB))
    assert bench.error_of(shop, "UPDATEJOB", id, "BODY", "x" * (110 * KB)).startswith("OOM")
    assert allowed(bench, shop, "UPDATEJOB", id, "BODY", "x")
    assert sums(bench) == added_up(bench)


@pytest.mark.parametrize("how", ["UPDATEJOB", "QMOVE", "REDRIVE"])
def test_nothing_moves_into_queues_that_are_full(bench: Bench, how: str) -> None:
    shop = declare(bench, "%maxmemory=100kb", "~foreign")
    bench("ACL", "SETUSER", "shop", "resetkeys", "~shop.*", "%R~foreign")
    id = bench.add("foreign", "x" * (20 * KB))
    assert allowed(bench, shop, "ADDJOB", "shop.a", "x" * (99 * KB), 0)
    request: dict[str, tuple[str | bytes, ...]] = {
        "UPDATEJOB": ("UPDATEJOB", id, "QUEUE", "shop.a"),
        "QMOVE": ("QMOVE", "foreign", "shop.a"),
        "REDRIVE": ("REDRIVE", "foreign", "TO", "shop.a"),
    }
    bench.add("shop.b", "x" * KB)
    assert bench.error_of(shop, *request[how]).startswith("OOM user shop")
    assert bench.node.queues.by_name[b"foreign"].length == 1


def test_what_moves_within_ones_own_queues_takes_nothing_more(bench: Bench) -> None:
    shop = declare(bench, "%maxmemory=100kb")
    assert allowed(bench, shop, "ADDJOB", "shop.a", "x" * (99 * KB), 0)
    bench.send(shop, "QMOVE", "shop.a", "shop.b")
    bench.advance(0.1)
    assert bench.replies(shop) == [1]
    assert sums(bench) == added_up(bench)


def test_a_group_of_commands_stops_at_the_memory(bench: Bench) -> None:
    shop = declare(bench, "%maxmemory=100kb")
    bench.ask(shop, "MULTI")
    for _ in range(3):
        bench.ask(shop, "ADDJOB", "shop.a", "x" * (40 * KB), 0)
    replies = bench.ask(shop, "EXEC")
    assert isinstance(replies, list)
    assert [isinstance(reply, bytes) for reply in replies] == [True, True, False]


def test_jobs_of_schedules_and_copies_of_topics_fit_into_the_budgets_of_their_makers(
    bench: Bench,
) -> None:
    shop = declare(bench, "%maxmemory=100kb", "~@*")
    bench.ask(shop, "CRON", "SET", "tick", "@every 1s", "shop.a", "x" * (20 * KB))
    bench.ask(shop, "BIND", "news", "shop.b")
    for _ in range(20):
        bench.advance(1)
        bench.node.commit()
    assert bench.number_queued("shop.a") == 4
    replies = bench("ADDJOB", "@news", "x" * (30 * KB), 0)
    assert str(replies).startswith("OOM user shop may hold 100kb")
    assert len(bench.host.limits) == 1


@pytest.mark.parametrize("topics", [("#", "news"), ("news", "#")])
def test_a_full_user_of_all_queues_stops_no_schedules_and_topics_of_others(
    bench: Bench, topics: tuple[str, str]
) -> None:
    evil = declare(bench, "%maxmemory=100kb", "allqueues", name="evil")
    mail = declare(bench, "%maxmemory=1mb", "~@*", name="mail")
    assert allowed(bench, evil, "ADDJOB", "evil", "x" * (98 * KB), 0)
    bench.ask(mail, "CRON", "SET", "tick", "@every 1s", "mail.a", "x" * (20 * KB))
    bench("CRON", "SET", "free", "@every 1s", "mail.c", "x" * (20 * KB))
    bench.ask(evil, "BIND", topics[0], "mail.b")
    bench.ask(mail, "BIND", topics[1], "mail.b")
    bench("BIND", "news", "mail.d")
    bench.advance(1)
    bench.node.commit()
    assert bench.number_queued("mail.a") == bench.number_queued("mail.c") == 1
    replies = bench("ADDJOB", "@news", "x" * (30 * KB), 0)
    assert isinstance(replies, list)
    assert [isinstance(reply, bytes) for reply in replies] == [True, True]
    assert bench.error_of(evil, "ADDJOB", "evil", "x", 0).startswith("OOM")


# ---- keys, schedules, bindings ------------------------------------------------------------------


def test_keys_beyond_the_limit_are_refused(bench: Bench) -> None:
    shop = declare(bench, "%maxkeys=2")
    options = ("TTL", 100, "RETRY", 0, "REPLICATE", 1, "FOR", 1000, "UNIQUE")
    first = bench.ask(shop, "ADDJOB", "shop.a", "b", 0, *options, "k1")
    assert allowed(bench, shop, "ADDJOB", "shop.b", "b", 0, *options, "k2")
    why = "LIMIT user shop may have 2 keys of UNIQUE for its queues (%maxkeys), there are 2"
    assert bench.error_of(shop, "ADDJOB", "shop.a", "b", 0, *options, "k3") == why
    assert bench.ask(shop, "ADDJOB", "shop.a", "b", 0, *options, "k1") == first
    assert allowed(bench, shop, "ADDJOB", "shop.a", "b", 0)
    bench.advance(1001)
    for _ in range(100):
        bench.node.cron(bench.now)
    assert allowed(bench, shop, "ADDJOB", "shop.a", "b", 0, *options, "k3")
    assert sums(bench)["keys"] == 1


UNIQUE = ("RETRY", 0, "REPLICATE", 1, "UNIQUE")


def test_a_key_of_a_job_that_is_gone_lets_nobody_have_more(bench: Bench) -> None:
    shop = declare(bench, "%maxmemory=100kb", "%maxkeys=1")
    uniques = bench.node.store.uniques
    uniques.add(b"shop.a", b"k", b"D-gone", ADDED, False, bench.now + 10**6)
    body = "x" * (110 * KB)
    assert bench.error_of(shop, "ADDJOB", "shop.a", body, 0, "UNIQUE", "k").startswith("OOM")
    assert allowed(bench, shop, "ADDJOB", "shop.a", "b", 0, "UNIQUE", "k")
    assert sums(bench) == added_up(bench)
    assert sums(bench)["keys"] == 1


@pytest.mark.parametrize("rule", ["%maxmemory=100kb", "%maxkeys=2"])
def test_a_claim_of_a_key_that_is_not_free_is_checked_when_it_is(rule: str) -> None:
    mesh = Mesh(2)
    for bench in mesh.nodes:
        declare(bench, rule)
    bench = mesh[0]
    shop = bench.client()
    bench.ask(shop, "AUTH", "shop", "x")
    for it in mesh.nodes:
        it.node.store.uniques.add(b"shop.a", b"k", GONE, ADDED, False, it.now + 10**6)
    bench.send(shop, "ADDJOB", "shop.a", "x" * (110 * KB), 0, *UNIQUE, "k")
    for number in range(3):
        bench.node.store.uniques.add(b"shop.b", b"%d" % number, GONE, ADDED, True, 10**15)
    for _ in range(20):
        mesh.settle()
        for it in mesh.nodes:
            it.advance(0.1)
    (reply,) = bench.replies(shop)
    assert str(reply).startswith("OOM user shop" if "memory" in rule else "LIMIT user shop")
    assert sums(bench) == added_up(bench)
    assert not bench.node.admissions.held


def test_keys_take_memory(bench: Bench) -> None:
    shop = declare(bench, "%maxmemory=100kb")
    key = "k" * (60 * KB)
    assert bench.error_of(shop, "ADDJOB", "shop.a", "b", 0, "UNIQUE", key).startswith("OOM")
    assert allowed(bench, shop, "ADDJOB", "shop.a", "b", 0, "UNIQUE", key[: 20 * KB])
    assert sums(bench) == added_up(bench)


def test_schedules_beyond_the_limit_are_refused(bench: Bench) -> None:
    shop = declare(bench, "%maxschedules=2")
    spec = ("@every 1h", "shop.a", "b")
    assert allowed(bench, shop, "CRON", "SET", "one", *spec)
    assert allowed(bench, shop, "CRON", "SET", "two", *spec)
    why = "LIMIT user shop may have 2 schedules for its queues (%maxschedules), there are 2"
    assert bench.error_of(shop, "CRON", "SET", "three", *spec) == why
    assert allowed(bench, shop, "CRON", "SET", "two", "@every 2h", "shop.b", "b")
    assert allowed(bench, bench.me, "CRON", "SET", "free", "@every 1h", "other", "b")
    assert bench.ask(shop, "CRON", "DEL", "one") == 1
    assert allowed(bench, shop, "CRON", "SET", "three", *spec)


def test_bindings_beyond_the_limit_are_refused(bench: Bench) -> None:
    shop = declare(bench, "%maxbindings=1", "~@*")
    assert bench.ask(shop, "BIND", "news", "shop.a") == b"OK"
    why = "LIMIT user shop may have 1 bindings for its queues (%maxbindings), there are 1"
    assert bench.error_of(shop, "BIND", "news", "shop.b") == why
    assert bench.ask(shop, "BIND", "news", "shop.a") == b"OK"
    assert bench.ask(shop, "UNBIND", "news", "shop.a") == 1
    assert bench.ask(shop, "BIND", "news", "shop.b") == b"OK"


def test_policies_beyond_the_limit_are_refused(bench: Bench) -> None:
    bench("QSET", "shop.old", "MAXLEN", 5)
    shop = declare(bench, "%maxpolicies=2")
    assert allowed(bench, shop, "QSET", "shop.a", "MAXLEN", 5)
    why = "LIMIT user shop may have 2 policies for its queues (%maxpolicies), there are 2"
    assert bench.error_of(shop, "QSET", "shop.b", "MAXLEN", 5) == why
    assert allowed(bench, shop, "QSET", "shop.a", "MAXLEN", 6)
    assert allowed(bench, bench.me, "QSET", "other", "MAXLEN", 5)
    assert bench.ask(shop, "QDEL", "shop.a") == 1
    assert allowed(bench, shop, "QSET", "shop.b", "MAXLEN", 5)
    assert bench.node.budgets.used_by(shop.user)["policies"] == 2


def test_pauses_of_all_nodes_count_as_policies(bench: Bench) -> None:
    bench("PAUSE", "shop.old", "in", "BCAST")
    shop = declare(bench, "%maxpolicies=2")
    assert bench.ask(shop, "PAUSE", "shop.a", "in", "BCAST") == b"in"
    why = "LIMIT user shop may have 2 policies for its queues (%maxpolicies), there are 2"
    assert bench.error_of(shop, "PAUSE", "shop.b", "out", "BCAST") == why
    assert bench.error_of(shop, "QSET", "shop.b", "MAXLEN", 5) == why
    assert bench.ask(shop, "PAUSE", "shop.b", "out") == b"out"
    assert bench.ask(shop, "PAUSE", "shop.a", "all", "BCAST") == b"all"
    assert bench.ask(shop, "PAUSE", "shop.a", "none", "BCAST") == b"none"
    assert allowed(bench, shop, "QSET", "shop.b", "MAXLEN", 5)
    assert bench.node.budgets.used_by(shop.user)["policies"] == 2


# ---- counting -----------------------------------------------------------------------------------


def mix(bench: Bench, rng: random.Random, steps: int) -> None:
    """All kinds of changes to jobs, keys, schedules and bindings."""
    ids: list[bytes] = []
    for step in range(steps):
        queue = rng.choice(["shop.a", "shop.b", "other"])
        id = rng.choice(ids) if ids else b""
        match rng.randrange(13):
            case 0 | 1 | 2:
                options: list[str | int] = rng.choice(
                    [[], ["DELAY", 5], ["GROUP", "g"], ["UNIQUE", step, "FOR", 3], ["TTL", 2]]
                )
                ids.append(bench.add(queue, "x" * rng.randrange(100), *options))
            case 3:
                bench("GETJOB", "NOHANG", "FROM", queue)
            case 4 | 5:
                bench("ACKJOB", id, *rng.choice([(), ("RESULT", "r" * 50)])) if id else None
            case 6:
                bench("UPDATEJOB", id, "BODY", "y" * rng.randrange(200)) if id else None
            case 7:
                bench("UPDATEJOB", id, "QUEUE", queue) if id else None
            case 8:
                bench("CRON", "SET", step % 5, "@every 3s", queue, "b")
            case 9:
                bench("NACK", id, "REASON", "r" * rng.randrange(50)) if id else None
            case 10:
                bench(rng.choice(["BIND", "UNBIND"]), "t", queue)
            case 11:
                bench("PAUSE", f"shop.{step % 5}", rng.choice(["in", "out", "none"]))
            case 12:
                bench.advance(rng.random())
                bench.node.cron(bench.now)


@pytest.mark.parametrize("seed", range(5))
def test_sums_are_right_after_whatever_happens(make_bench: Callable[..., Bench], seed: int) -> None:
    bench = make_bench(seed=seed)
    rng = random.Random(seed)
    mix(bench, rng, 300)
    assert bench.node.memory.shares is None
    declare(bench, "%maxmemory=1gb")
    slices = 0
    while bench.node.budgets.busy:
        mix(bench, rng, 10)
        bench.node.cron(bench.now)
        slices += 1
    assert slices > 10
    assert sums(bench) == added_up(bench)
    mix(bench, rng, 200)
    assert sums(bench) == added_up(bench)
    declare(bench, "%maxkeys=1000", name="other")
    bench("ACL", "SETUSER", "other", "resetkeys", "~other")
    bench.node.cron(bench.now)
    assert sums(bench, "other") == added_up(bench, b"other")
    assert sums(bench) == added_up(bench)
    bench("DEBUG", "FLUSHALL")
    assert sums(bench) == added_up(bench)
    mix(bench, rng, 50)
    assert sums(bench) == added_up(bench)
    declare(bench, "%maxkeys=1000", name="late")
    bench("ACL", "SETUSER", "late", "resetkeys", "~shop.*")
    assert sums(bench, "late") == added_up(bench)


def test_what_came_after_a_flush_counts_if_there_are_budgets_only_later(bench: Bench) -> None:
    bench("DEBUG", "FLUSHALL")
    ids = [bench.add("shop.a") for _ in range(3)]
    declare(bench, "%maxmemory=1mb")
    while bench.node.budgets.busy:
        bench.node.cron(bench.now)
    assert sums(bench) == added_up(bench)
    assert sums(bench)["memory"] > 0
    bench("DELJOB", *ids)
    assert sums(bench)["memory"] == 0


def test_nobody_has_more_while_sums_are_added_up_again(bench: Bench) -> None:
    declare(bench, "%maxmemory=10mb")
    declare(bench, "%maxmemory=10mb", name="mail")
    for number in range(2 * LOOKS):
        bench.add(f"shop.{number}", "", "TTL", 9_000)
    before = sums(bench)
    bench("ACL", "SETUSER", "mail", ">password", "%maxkeys=7")
    assert not bench.node.budgets.busy
    bench("ACL", "SETUSER", "mail", "~more", "~more.*", "%maxmemory=9mb")
    assert bench.node.budgets.busy
    assert sums(bench) == before == added_up(bench)
    bench("ACL", "SETUSER", "shop", "~else.*")
    assert sums(bench) == before
    while bench.node.budgets.busy:
        bench.add("shop.new", "", "TTL", 9_000)
        bench.node.cron(bench.now)
    assert sums(bench) == added_up(bench)
    assert sums(bench)["memory"] > before["memory"]
    bench("ACL", "SETUSER", "shop", "resetkeys", "~shop.1*")
    while bench.node.budgets.busy:
        bench.node.cron(bench.now)
    assert sums(bench) == added_up(bench, b"shop.1")


def test_with_many_users_a_queue_is_compared_with_few_globs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        bench("ACL", "SETUSER", f"u{number}", f"~u{number}.*", "+@all", "%maxmemory=1mb")
    compared: list[bytes] = []
    matches = Glob.matches

    def count(self: Glob, name: bytes) -> bool:
        compared.append(name)
        return matches(self, name)

    monkeypatch.setattr(Glob, "matches", count)
    bench.add("u7.a")
    bench.add("q")
    assert len(compared) == 1
    bench("ACL", "SETUSER", "all", "~*", "+@all", "%maxmemory=1mb")
    assert sums(bench, "u7")["memory"] == JOB_OVERHEAD + 4
    assert sums(bench, "all")["memory"] == 2 * (JOB_OVERHEAD + 4)


def test_a_slice_compares_few_queues_with_the_globs_of_many_users(bench: Bench) -> None:
    declare(bench, "%maxmemory=1mb")
    for number in range(100):
        bench.add(f"x{number}")
    budgets = bench.node.budgets
    for number in range(100):
        bench.node.users.set(b"u%d" % number, [b"~*%d" % number, b"%maxmemory=1mb"])
    budgets.users_changed()
    slices = 1
    while budgets.busy:
        budgets.go_on()
        slices += 1
    assert slices >= 100 * 100 // LOOKS
    assert sums(bench, "u7")["memory"] == 10 * (JOB_OVERHEAD + 4)


def test_a_user_who_goes_is_not_counted_for(bench: Bench) -> None:
    declare(bench, "%maxmemory=1kb")
    bench.add("shop.a", "x" * 2000)
    bench("ACL", "SETUSER", "shop", "nolimits")
    assert sums(bench) == {}
    bench("ACL", "SETUSER", "shop", "%maxmemory=2kb")
    assert sums(bench) == added_up(bench)
    assert sums(bench)["memory"] > 2000
    bench("ACL", "DELUSER", "shop")
    assert bench.node.budgets.owners == {}


def test_copies_for_other_nodes_count() -> None:
    mesh = Mesh(2)
    for bench in mesh.nodes:
        declare(bench, "%maxmemory=100kb", "%maxkeys=5")
    bench = mesh[0]
    shop = bench.client()
    bench.ask(shop, "AUTH", "shop", "x")
    bench.send(shop, "ADDJOB", "shop.a", "x" * KB, 0, "UNIQUE", "k", "FOR", 100)
    mesh.settle()
    for bench in mesh.nodes:
        assert sums(bench) == added_up(bench)
        assert sums(bench)["keys"] == 1
        assert sums(bench)["memory"] > 2 * KB


def test_jobs_that_wait_for_other_nodes_count() -> None:
    mesh = Mesh(2)
    bench = mesh[0]
    shop = declare(bench, "%maxmemory=100kb")
    for _ in range(3):
        bench.send(shop, "ADDJOB", "shop.a", "x" * (40 * KB), 0, "UNIQUE", random.random())
    assert sums(bench) == added_up(bench)
    mesh.settle()
    replies = bench.replies(shop)
    assert [isinstance(reply, bytes) for reply in replies] == [True, True, False]
    assert sums(bench) == added_up(bench)


# ---- what is shown ------------------------------------------------------------------------------


def test_info_shows_use_and_limits(bench: Bench) -> None:
    shop = declare(bench, "%maxmemory=100kb", "%maxkeys=5", "%maxconnections=3", "%rate=500/s")
    bench("ACL", "SETUSER", "a:b#c", "%maxschedules=7")
    bench.ask(shop, "ADDJOB", "shop.a", "x" * 1000, 0)
    bench.error_of(shop, "ADDJOB", "shop.a", "x" * (100 * KB), 0)
    assert bench.info("users") == {
        "user_shop": "memory=1480,maxmemory=102400,keys=0,maxkeys=5,connections=1,maxconnections=3,"
        "rate=500,waited=0,refused=1,closed=0",
        "user_a_b_c": "schedules=0,maxschedules=7,waited=0,refused=0,closed=0",
    }
    assert "user_shop" in bench.info("all")
    assert "user_shop" in bench.info("default")
    bench("ACL", "DELUSER", "shop", "a:b#c")
    assert "# Users" not in bench.text("INFO", "all")


def test_schedules_and_bindings_that_are_forgotten_do_not_count(bench: Bench) -> None:
    bench("CRON", "SET", "before", "@every 1h", "shop.a", "b")
    declare(bench, "%maxschedules=5", "%maxbindings=5")
    bench("CRON", "SET", "tick", "@every 1h", "shop.a", "b")
    bench("CRON", "SET", "tick", "@every 2h", "other", "b")
    bench("BIND", "news", "shop.a")
    assert sums(bench) == added_up(bench)
    assert (sums(bench)["schedules"], sums(bench)["bindings"]) == (1, 1)
    bench.node.ticks.schedules.clear()  # CLUSTER RESET HARD
    bench.node.topics.bindings.clear()
    assert (sums(bench)["schedules"], sums(bench)["bindings"]) == (0, 0)


def test_queues_with_nothing_in_them_are_forgotten(bench: Bench) -> None:
    declare(bench, "%maxmemory=1mb")
    ids = [bench.add(f"shop.{number}") for number in range(10)]
    bench("ACKJOB", *ids[1:])
    bench.node.cron(bench.now)
    assert list(bench.node.budgets._shares) == [b"shop.0"]
    assert sums(bench) == added_up(bench)
    bench.add("shop.1")
    assert sums(bench) == added_up(bench)


@pytest.mark.parametrize(
    ("size", "shown"),
    [(999, "999 bytes"), (KB, "1kb"), (MB - KB, "1023kb"), (MB, "1mb"), (1536 * KB, "1.5mb")],
)
def test_a_size_is_shown_as_in_rules(bench: Bench, size: int, shown: str) -> None:
    client = declare(bench, f"%maxmemory={size}")
    refused = bench.ask(client, "ADDJOB", "shop.a", "x" * 2 * MB, 0)
    assert f" may hold {shown} of jobs" in str(refused)
