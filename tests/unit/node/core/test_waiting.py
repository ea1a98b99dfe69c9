"""Blocking GETJOB: who gets which job, and when a wait ends."""

import pytest

from tests.support.node_bench import Bench

LEAVING = "LEAVING This node is leaving the cluster, please connect to a different one"


# ---- first come, first served -------------------------------------------------------------------


def test_waiting_clients_are_served_first_come_first_served(bench: Bench) -> None:
    waiting = [bench.block("q") for _ in range(50)]
    jobs = [bench.add() for _ in range(50)]
    assert [bench.got(client) for client in waiting] == jobs
    assert bench.info("clients")["blocked_clients"] == "0"


def test_a_client_that_waits_anew_stands_at_the_end(bench: Bench) -> None:
    first, second = bench.block("q"), bench.block("q")
    job = bench.add()
    assert bench.got(first) == job
    bench.block("q", client=first)
    following = bench.add()
    assert bench.got(second) == following
    assert first.blocked


def test_clients_that_wait_for_many_queues_are_served_in_order(bench: Bench) -> None:
    both = bench.block("a", "b")
    only_b = bench.block("b")
    only_a = bench.block("a")
    job_b1, job_b2, job_a = bench.add("b"), bench.add("b"), bench.add("a")
    assert bench.got(both) == job_b1
    assert bench.got(only_b) == job_b2
    assert bench.got(only_a) == job_a


def test_a_blocked_call_gets_exactly_one_job_whatever_its_count(bench: Bench) -> None:
    client = bench.client()
    bench.send(client, "GETJOB", "COUNT", 10, "FROM", "a", "b")
    ids = [bench.add("a", "b", "DELAY", 1) for _ in range(3)]
    bench.advance(1.1)
    assert bench.got(client) == ids[0]
    assert bench("QLEN", "a") == 2


def test_a_served_client_waits_for_none_of_its_queues_any_more(bench: Bench) -> None:
    client = bench.block("a", "b", "b")
    assert bench.queue("b")[b"blocked"] == 1
    bench.add("a")
    bench.got(client)
    assert bench.queue("a")[b"blocked"] == bench.queue("b")[b"blocked"] == 0
    bench.add("b")
    assert client.out == []
    assert bench("QLEN", "b") == 1


def test_a_client_that_disconnects_gets_no_job(bench: Bench) -> None:
    gone, stays = bench.block("q"), bench.block("q")
    bench.disconnect(gone)
    assert bench.queue()[b"blocked"] == 1
    job = bench.add()
    assert gone.out == []
    assert bench.got(stays) == job


@pytest.mark.parametrize("how", ["NACK", "ENQUEUE"])
def test_a_job_that_is_queued_again_goes_to_a_waiting_client(bench: Bench, how: str) -> None:
    job = bench.add()
    bench.get()
    client = bench.block("q")
    assert bench(how, job) == 1
    assert bench.got(client) == job


def test_retry_serves_a_waiting_client(bench: Bench) -> None:
    job = bench.add("q", "b", "RETRY", 5)
    bench.get()
    client = bench.block("q")
    bench.advance(5.3)
    assert bench.got(client) == job


def test_the_producer_is_answered_before_the_consumer_is_served(bench: Bench) -> None:
    client = bench.block("q")
    job = bench.add()
    assert bench.node.woken == [client]
    assert bench.got(client) == job


def test_a_thousand_waiting_clients_on_ten_queues(bench: Bench) -> None:
    waiting = [(bench.block(f"q{n % 10}"), n % 10) for n in range(1000)]
    jobs = {n: [bench.add(f"q{n}") for _ in range(100)] for n in range(10)}
    for client, n in waiting:
        assert bench.got(client) == jobs[n].pop(0)
    assert bench.info("clients")["blocked_clients"] == "0"


# ---- the end of a wait --------------------------------------------------------------------------


def test_a_wait_ends_with_a_null_array_at_its_timeout(bench: Bench) -> None:
    client = bench.block("q", timeout=1500)
    assert bench.node.next_wake() == bench.now + 1500
    bench.advance(1.499)
    assert client.blocked
    bench.advance(0.001)
    assert not client.blocked
    assert bench.raw(client) == b"*-1\r\n"
    assert bench.node.next_wake() == 0


def test_timeouts_end_in_the_order_of_their_deadlines(bench: Bench) -> None:
    late, early, never = (bench.block("q", timeout=t) for t in (3000, 1000, 0))
    bench.advance(1)
    assert (late.blocked, early.blocked, never.blocked) == (True, False, True)
    bench.advance(2)
    assert (late.blocked, never.blocked) == (False, True)
    bench.advance(10**6)
    assert never.blocked


def test_the_timeout_of_a_wait_that_ended_does_not_end_the_next_one(bench: Bench) -> None:
    client = bench.block("q", timeout=1000)
    job = bench.add()
    assert bench.got(client) == job
    bench.block("q", timeout=5000, client=client)
    bench.now += 2000
    bench.node.tick(bench.now)
    assert client.blocked
    bench.advance(3)
    assert bench.raw(client) == b"*-1\r\n"


def test_thousands_of_served_waits_leave_no_deadlines_behind(bench: Bench) -> None:
    client = bench.client()
    for _ in range(5000):
        bench.block("q", timeout=3_600_000, client=client)
        job = bench.add()
        assert bench.got(client) == job
        bench("ACKJOB", job)
    assert len(bench.node.wait_ends._ends) < 2000
    assert bench.node.next_wake() == 0


def test_a_timeout_of_ages_is_allowed(bench: Bench) -> None:
    client = bench.block("q", timeout=2**63 - 1)
    bench.advance(10**7)
    assert client.blocked


def test_flushing_ends_all_waits_with_a_null_array(bench: Bench) -> None:
    client = bench.block("a", "b", timeout=10_000)
    assert bench("DEBUG", "FLUSHALL") == b"OK"
    assert bench.raw(client) == b"*-1\r\n"
    assert not client.blocked


def test_cluster_reset_ends_all_waits_with_a_null_array(bench: Bench) -> None:
    client = bench.block("q")
    assert bench("CLUSTER", "RESET") == b"OK"
    assert bench.raw(client) == b"*-1\r\n"


# ---- nulls --------------------------------------------------------------------------------------


def test_nothing_to_get_is_a_null_array_in_resp2_and_null_in_resp3(bench: Bench) -> None:
    old, new = bench.client(), bench.client()
    bench.send(new, "HELLO", 3)
    bench.raw(new)
    for client, nothing in ((old, b"*-1\r\n"), (new, b"_\r\n")):
        bench.send(client, "GETJOB", "NOHANG", "FROM", "q")
        assert bench.raw(client) == nothing
        bench.block("q", timeout=100, client=client)
        bench.advance(0.1)
        assert bench.raw(client) == nothing


# ---- a node that leaves -------------------------------------------------------------------------


def test_a_leaving_node_tells_waiting_clients_to_go_elsewhere(bench: Bench) -> None:
    client = bench.block("q", timeout=5000)
    assert bench("CLUSTER", "LEAVING", "yes") == b"OK"
    (reply,) = bench.replies(client)
    assert str(reply) == LEAVING
    assert not client.blocked


def test_a_leaving_node_gives_what_it_has_and_never_blocks(bench: Bench) -> None:
    job = bench.add()
    bench("CLUSTER", "LEAVING", "yes")
    assert bench.get() == job
    assert bench.error("GETJOB", "FROM", "q") == LEAVING
    assert bench.error("GETJOB", "TIMEOUT", 100, "FROM", "q") == LEAVING
    assert bench("GETJOB", "NOHANG", "FROM", "q") is None
    bench("CLUSTER", "LEAVING", "no")
    bench.block("q")


def test_a_leaving_node_takes_no_new_jobs(bench: Bench) -> None:
    bench("CLUSTER", "LEAVING", "yes")
    few = "NOREPL Not enough reachable nodes for the requested replication level"
    assert bench.error("ADDJOB", "q", "b", 0) == (
        f"{few}, since I'm unable to hold a copy of the message for the following reason: "
        "I'm leaving the cluster"
    )
    assert bench.error("ADDJOB", "q", "b", 0, "REPLICATE", 2).startswith(
        "NOREPL Not enough reachable nodes: "
    )
    assert bench.info("jobs")["registered_jobs"] == "0"


def priority_of(bench: Bench) -> object:
    """The priority that the node of ``bench`` tells of itself."""
    reply = bench("HELLO")
    assert isinstance(reply, list)
    return reply[2][3]


def test_a_node_that_cannot_take_jobs_has_a_worse_priority() -> None:
    bench = Bench(maxmemory=1 << 20)
    for percent, priority in ((80, b"1"), (96, b"10"), (94, b"10"), (80, b"1")):
        bench.node.memory.used = (1 << 20) * percent // 100
        bench.node.cron(bench.now)
        assert priority_of(bench) == priority
    bench.node.set_trouble(False, "it is read-only")
    assert priority_of(bench) == b"100"


def test_a_leaving_node_has_a_bad_priority(bench: Bench) -> None:
    assert priority_of(bench) == b"1"
    bench("CLUSTER", "LEAVING", "yes")
    assert priority_of(bench) == b"100"
    assert bench("CLUSTER", "LEAVING") == b"yes"
    assert "myself,leaving" in bench.text("CLUSTER", "NODES")


# ---- several queues -----------------------------------------------------------------------------


def test_count_over_several_queues_takes_one_from_each_in_turn(bench: Bench) -> None:
    a = [bench.add("a") for _ in range(3)]
    b = [bench.add("b") for _ in range(1)]
    c = [bench.add("c") for _ in range(4)]
    got = bench.get_all("a", "b", "c", "empty", count=7)
    assert got == [a[0], b[0], c[0], a[1], c[1], a[2], c[2]]
    assert bench.get_all("a", "b", "c") == [c[3]]


def test_without_count_the_leftmost_queue_with_a_job_gives_one(bench: Bench) -> None:
    b, a = bench.add("b"), bench.add("a")
    assert bench.get("empty", "a", "b") == a
    assert bench.get("empty", "a", "b") == b


def test_getjob_makes_the_queues_that_it_waits_for_and_no_other(bench: Bench) -> None:
    bench.add("has")
    before = bench.node.memory.used
    assert bench.get("q", "r") is None
    bench("MULTI")
    bench("GETJOB", "FROM", "q", "r")
    assert bench("EXEC") == [None]
    assert bench("QSTAT", "q") is None
    assert bench.node.memory.used == before
    assert bench.get("q", "has", "r") is not None
    assert bench("QSTAT", "q") is None
    bench.block("q", "r")
    assert bench.queue("q")[b"len"] == bench.queue("r")[b"len"] == 0


def test_getjob_takes_a_thousand_names_at_most(bench: Bench) -> None:
    names = [f"q{number}" for number in range(1_001)]
    bench.add("q999")
    assert "at most 1000 queues" in bench.error("GETJOB", "NOHANG", "FROM", *names)
    assert "at most 1000 queues" in bench.error("GETJOB", "FROM", *names)
    assert bench.get(*names[:1_000]) is not None
    assert list(bench.node.queues.by_name) == [b"q999"]


def test_a_blocked_withcounters_gets_its_counters(bench: Bench) -> None:
    client = bench.client()
    bench.send(client, "GETJOB", "WITHCOUNTERS", "FROM", "q")
    id = bench.add("q", "body")
    assert bench.replies(client) == [
        [[b"q", id, b"body", b"nacks", 0, b"additional-deliveries", 0]]
    ]


# ---- CLIENT REPLY around a wait ------------------------------------------------------------------


def test_with_reply_off_a_blocked_call_takes_a_job_in_silence(bench: Bench) -> None:
    client = bench.client()
    bench.send(client, "CLIENT", "REPLY", "OFF")
    bench.block("q", client=client)
    job = bench.add()
    assert not client.blocked
    assert bench.raw(client) == b""
    assert bench.show(job)[b"state"] == b"active"


def test_reply_skip_holds_for_the_whole_of_a_blocked_call(bench: Bench) -> None:
    client = bench.client()
    bench.send(client, "CLIENT", "REPLY", "SKIP")
    bench.block("q", client=client, timeout=100)
    bench.advance(1)
    assert bench.raw(client) == b""
    assert bench.ask(client, "PING") == b"PONG"
