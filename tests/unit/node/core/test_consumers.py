"""CONSUME: jobs pushed to clients, on one node and on several."""

from pathlib import Path

import pytest

from disque_trio.node.core.delivery.consumers import A_TURN, ALL_IN_A_TURN, MAX_CREDIT, MAX_IN_HAND
from tests.support.consumers import consumer, pushed
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench, loaded_again
from tests.support.policies import set_policy


@pytest.fixture
def bench() -> Bench:
    return Bench(jitter=0)


# ---- credit -----------------------------------------------------------------------------------


def test_jobs_are_pushed_as_long_as_there_is_credit(bench: Bench) -> None:
    client = consumer(bench)
    ids = [bench.add() for _ in range(4)]
    assert pushed(bench, client) == ids[:2]
    bench("ACKJOB", ids[0])
    assert pushed(bench, client) == [ids[2]]
    assert bench.number_queued() == 1
    assert bench.node.consumers.in_hand == 2


def test_a_client_that_is_pushed_a_job_is_looked_at_although_it_asked_for_nothing(
    bench: Bench,
) -> None:
    client = consumer(bench)
    bench.node.commit()
    bench.node.woken.clear()
    bench.add()
    bench.node.commit()
    assert bench.node.woken == [client]


def test_what_is_there_already_is_pushed(bench: Bench) -> None:
    ids = [bench.add() for _ in range(3)]
    assert pushed(bench, consumer(bench)) == ids[:2]


@pytest.mark.parametrize("ending", ["ACKJOB", "FASTACK", "NACK", "DELJOB", "CANCEL", "ENQUEUE"])
def test_what_ends_a_delivery_gives_credit_back(bench: Bench, ending: str) -> None:
    client = consumer(bench, "q", "CREDIT", 1)
    first, second = bench.add(), bench.add()
    assert pushed(bench, client) == [first]
    assert bench(ending, first) == 1
    assert pushed(bench, client) == [second if ending not in ("NACK", "ENQUEUE") else first]


def test_an_end_of_life_gives_credit_back(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 1)
    first = bench.add("q", "b", "RETRY", 20, "TTL", 15)
    second = bench.add()
    assert pushed(bench, client) == [first]
    bench.advance(17)
    assert pushed(bench, client) == [second]


def test_a_retry_gives_credit_back_once_the_client_has_said_something(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 2)
    first, second = (bench.add("q", "b", "RETRY", retry) for retry in (10, 1000))
    assert pushed(bench, client) == [first, second]
    bench.advance(50)
    assert pushed(bench, client) == []
    assert bench.number_queued() == 1
    third = bench.add()
    assert bench.ask(client, "PING") == b"PONG"
    assert pushed(bench, client) == [first]
    assert bench.ask(client, "ACKJOB", second) == 1
    assert pushed(bench, client) == [third]


def test_beside_a_client_that_hangs_no_job_becomes_a_dead_letter(bench: Bench) -> None:
    set_policy(bench, attempts=3, dead=b"dead")
    client = consumer(bench, "q", "CREDIT", 10)
    ids = [bench.add("q", "b", "RETRY", 1) for _ in range(20)]
    assert len(pushed(bench, client)) == 10
    done = set()
    for _ in range(40):
        bench.advance(0.5)
        while (id := bench.get()) is not None:
            assert bench("ACKJOB", id) == 1
            done.add(id)
    assert done == set(ids)
    assert bench.number_queued("dead") == 0


def test_jobs_that_are_delivered_at_most_once_take_credit_too(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 1)
    ids = [bench.add("q", "b", "RETRY", 0, "REPLICATE", 1) for _ in range(2)]
    assert pushed(bench, client) == ids[:1]
    bench("ACKJOB", ids[0])
    assert pushed(bench, client) == ids[1:]


def test_credit_can_be_changed(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 1)
    ids = [bench.add() for _ in range(5)]
    assert pushed(bench, client) == ids[:1]
    assert bench.ask(client, "CREDIT", 3) == b"OK"
    assert pushed(bench, client) == ids[1:3]
    assert bench.ask(client, "CREDIT", 0) == b"OK"
    bench("ACKJOB", *ids[:3])
    assert pushed(bench, client) == []
    assert bench.ask(client, "CREDIT", MAX_CREDIT) == b"OK"
    assert pushed(bench, client) == ids[3:]


def test_stop_ends_it_and_leaves_what_was_pushed(bench: Bench) -> None:
    client = consumer(bench)
    ids = [bench.add() for _ in range(3)]
    assert pushed(bench, client) == ids[:2]
    assert bench.ask(client, "CONSUME", "STOP") == 2
    bench("ACKJOB", ids[0])
    assert pushed(bench, client) == []
    assert "does not CONSUME" in bench.error_of(client, "CREDIT", 5)
    bench.disconnect(client)
    bench.advance(0.01)
    assert bench.get_all() == [ids[1], ids[2]]
    assert bench.node.consumers.by_client == {}
    assert bench.ask(bench.client(), "CONSUME", "STOP") == 0


def test_a_second_consume_replaces_the_queues(bench: Bench) -> None:
    client = consumer(bench)
    first, other = bench.add("q"), bench.add("r")
    assert pushed(bench, client) == [first]
    assert bench.ask(client, "CONSUME", "r", "CREDIT", 2) == b"OK"
    assert pushed(bench, client) == [other]
    assert bench.node.queues.by_name[b"q"].waiters == {}
    assert bench.get() is None


def test_queues_that_come_first_are_preferred(bench: Bench) -> None:
    last, first = bench.add("low"), bench.add("high")
    client = consumer(bench, "high", "low", "CREDIT", 1)
    assert pushed(bench, client) == [first]
    next_one = bench.add("high")
    bench("ACKJOB", first)
    assert pushed(bench, client) == [next_one]
    bench("ACKJOB", next_one)
    assert pushed(bench, client) == [last]


def test_other_commands_go_on_and_their_replies_come_first(bench: Bench) -> None:
    client = consumer(bench)
    bench.send(client, "ADDJOB", "q", "body", 0)
    bench.send(client, "PING")
    raw = bench.raw(client)
    assert raw.index(b"+PONG") < raw.index(b">4")
    bench.send(client, "CLIENT", "REPLY", "OFF")
    other = bench.add()
    bench.send(client, "PING")
    assert pushed(bench, client) == [other]


def test_workers_share_a_queue_fairly(bench: Bench) -> None:
    clients = [consumer(bench, "q", "CREDIT", 100) for _ in range(3)]
    for _ in range(30):
        bench.add()
    assert [len(pushed(bench, client)) for client in clients] == [10, 10, 10]


def test_those_that_wait_in_getjob_have_their_turn(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 100)
    waiting = bench.block()
    first, second = bench.add(), bench.add()
    assert pushed(bench, client) == [first]
    assert bench.got(waiting) == second


def test_pushed_jobs_have_the_details_of_getjob(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 1, "WITHHEADERS", "WITHCOUNTERS")
    id = bench.add("q", "b", "HEADERS", 1, "n", "v", "PRIORITY", 3)
    assert bench.pushes(client) == [
        [b"job", b"q", id, b"b", b"nacks", 0, b"additional-deliveries", 0, b"priority", 3,
         b"headers", [b"n", b"v"]]
    ]  # fmt: skip


def test_much_is_pushed_in_turns(bench: Bench) -> None:
    for _ in range(1_000):
        bench.add()
    client = consumer(bench, "q", "CREDIT", 1_000)
    assert len(pushed(bench, client)) == A_TURN
    bench.advance(0.001)
    assert len(pushed(bench, client)) == 1_000 - A_TURN


def test_a_pause_that_ends_does_not_push_all_in_one_turn(bench: Bench) -> None:
    bench("PAUSE", "q", "out")
    client = consumer(bench, "q", "CREDIT", 1_000)
    for _ in range(300):
        bench.add()
    assert pushed(bench, client) == []
    bench("PAUSE", "q", "none")
    assert len(pushed(bench, client)) == A_TURN
    bench.advance(0.001)
    assert len(pushed(bench, client)) == 200


@pytest.mark.parametrize("first", [0, 200])
def test_many_clients_do_not_get_all_in_one_turn(bench: Bench, first: int) -> None:
    clients = [consumer(bench, "q", "CREDIT", 200) for _ in range(30)]
    bench("PAUSE", "q", "out")
    for client in clients:
        bench.ask(client, "CREDIT", first)  # those with credit wait in the queue
    for _ in range(4_000):
        bench.add()
    bench("PAUSE", "q", "none")
    for client in clients:
        bench.send(client, "CREDIT", 200)
    most = ALL_IN_A_TURN + len(clients)
    left = bench.number_queued()
    assert left >= 4_000 - 2 * most
    while left:
        bench.node.commit()
        assert bench.node.next_wake() == bench.now
        bench.node.tick(bench.now)
        assert 0 < left - bench.number_queued() <= most
        left = bench.number_queued()
    counts = [bench.raw(client).count(b"\r\njob\r\n") for client in clients]
    assert sum(counts) == 4_000
    assert min(counts) >= A_TURN


def test_large_bodies_wait_until_others_are_done(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 100)
    ids = [bench.add("q", "x" * (MAX_IN_HAND // 2)) for _ in range(4)]
    assert pushed(bench, client) == ids[:2]
    bench("ACKJOB", ids[0])
    assert pushed(bench, client) == ids[2:3]


def test_a_client_that_does_not_read_gets_no_job_again_and_again(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 5)
    client.slow = True
    id = bench.add("q", "b", "RETRY", 1)
    assert pushed(bench, client) == [id]
    bench.advance(10)
    assert pushed(bench, client) == []
    assert bench.get() == id
    second = bench.add()
    client.slow = False
    bench.node.go_on_pushing(client)
    bench.advance(0.001)
    assert pushed(bench, client) == [second]


def test_a_queue_that_somebody_consumes_is_kept(bench: Bench) -> None:
    client = consumer(bench)
    bench.advance(1_000)
    bench.evict_idle_queues()
    id = bench.add()
    assert pushed(bench, client) == [id]


# ---- the end of the connection ------------------------------------------------------------------


def test_a_broken_connection_has_its_jobs_queued_again_at_once(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 5)
    ids = [bench.add("q", "b", "RETRY", 100) for _ in range(3)]
    assert pushed(bench, client) == ids
    bench("ACKJOB", ids[1])
    bench.disconnect(client)
    bench.advance(0.001)
    assert bench.get_all() == [ids[0], ids[2]]
    assert bench.number(ids[0], b"additional-deliveries") == 1


def test_a_worker_that_says_it_works_on_keeps_its_job(bench: Bench) -> None:
    """Before the node has queued it again, and after that."""
    client = consumer(bench, "q", "CREDIT", 5)
    ids = [bench.add("q", "b", "RETRY", 100) for _ in range(3)]
    assert pushed(bench, client) == ids
    bench.disconnect(client)
    assert bench("WORKING", ids[0]) == 100
    bench.advance(0.001)
    assert bench("WORKING", ids[1]) == 100
    assert bench.get_all() == [ids[2]]
    bench.advance(99)
    assert bench.get() is None
    bench.advance(2)
    assert {*bench.get_all()} == {*ids}


def test_who_may_no_longer_take_jobs_of_the_queue_is_disconnected(bench: Bench) -> None:
    bench("ACL", "SETUSER", "worker", "on", "nopass", "+@all", "~q", "~other")
    client = bench.client()
    client.resp = 3
    assert bench.ask(client, "AUTH", "worker", "any") == b"OK"
    assert bench.ask(client, "CONSUME", "q", "CREDIT", 2) == b"OK"
    bench("ACL", "SETUSER", "worker", "resetkeys", "~q")
    assert bench.host.closed == []
    bench("ACL", "SETUSER", "worker", "resetkeys", "~other")
    assert bench.host.closed == [client]


def test_with_onloss_retry_jobs_are_queued_again_after_their_retry_time(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 5, "ONLOSS", "retry")
    id = bench.add("q", "b", "RETRY", 100)
    assert pushed(bench, client) == [id]
    bench.disconnect(client)
    bench.advance(99)
    assert bench.get() is None
    bench.advance(2)
    assert bench.get() == id


def test_with_withcancels_a_client_hears_which_of_its_jobs_were_cancelled(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 2, "WITHCANCELS")
    other = consumer(bench, "other", "CREDIT", 2)
    ids = [bench.add("q"), bench.add("q"), bench.add("other")]
    assert pushed(bench, client) == ids[:2]
    assert pushed(bench, other) == ids[2:]
    more = bench.add("q")
    assert bench("CANCEL", ids[0], ids[2]) == 2
    assert bench("ACKJOB", ids[1]) == 1
    assert bench.pushes(other) == []
    said, *jobs = bench.pushes(client)
    assert said == [b"cancelled", ids[0]]
    assert [job[2] for job in jobs] == [more]
    assert bench("CANCEL", more) == 1
    assert bench.pushes(client) == [[b"cancelled", more]]


@pytest.mark.parametrize("how", [[], ["terminate"]])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_client_hears_that_its_job_was_cancelled_at_any_node_and_how(
    at: int, how: list[str]
) -> None:
    mesh = Mesh(3)
    client = consumer(mesh[0], "q", "CREDIT", 1, "WITHCANCELS")
    id = mesh.add(0, "REPLICATE", 2)
    assert pushed(mesh[0], client) == [id]
    mesh[at]("CANCEL", id, *how)
    mesh.advance(5)
    assert mesh[0].pushes(client) == [[b"cancelled", id, *(word.encode() for word in how)]]


def test_all_jobs_of_a_cancel_are_to_be_terminated_or_none(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 3, "WITHCANCELS")
    ids = [bench.add("q") for _ in range(3)]
    assert pushed(bench, client) == ids
    assert bench("CANCEL", ids[0], ids[1], "TERMINATE") == 2
    assert bench.pushes(client) == [[b"cancelled", id, b"terminate"] for id in ids[:2]]
    assert bench("CANCEL", ids[0], "TERMINATE") == 0
    assert bench.error("CANCEL", "TERMINATE").startswith("BADID")
    assert bench.error("CANCEL", "TERMINATE", ids[2]).startswith("BADID")
    assert bench.pushes(client) == []


def test_a_client_with_a_cancelled_job_gets_another_one_when_it_says_so(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 1, "WITHCANCELS")
    ids = [bench.add("q"), bench.add("q")]
    assert pushed(bench, client) == ids[:1]
    bench("CANCEL", ids[0])
    assert bench.pushes(client) == [[b"cancelled", ids[0]]]
    bench.advance(1)
    assert pushed(bench, client) == []
    assert bench.ask(client, "CREDIT", 0) == b"OK"
    assert pushed(bench, client) == []
    assert bench.ask(client, "CREDIT", 1) == b"OK"
    assert pushed(bench, client) == ids[1:]


def test_with_onloss_soon_somebody_can_say_before_what_becomes_of_the_jobs(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 5, "ONLOSS", "soon")
    ids = [bench.add("q", "b", "RETRY", retry) for retry in (100, 100, 100, 1)]
    assert pushed(bench, client) == ids
    bench.disconnect(client)
    assert bench("NACK", ids[0], "DELAY", 60) == 1
    assert bench("WORKING", ids[1]) == 100
    bench.advance(1.1)
    assert bench.get_all() == [ids[3]]  # its retry time was over before
    bench("ACKJOB", ids[3])
    bench.advance(1)
    assert bench.get_all() == [ids[2]]
    assert bench.number(ids[2], b"additional-deliveries") == 1
    bench.advance(59)
    assert bench.get_all() == [ids[0]]
    bench.advance(41)
    assert {*bench.get_all()} == {ids[1], ids[2]}


def test_what_is_delivered_at_most_once_is_not_queued_again(bench: Bench) -> None:
    client = consumer(bench)
    id = bench.add("q", "b", "RETRY", 0, "REPLICATE", 1)
    assert pushed(bench, client) == [id]
    bench.disconnect(client)
    bench.advance(1)
    assert bench.get() is None


def test_a_job_that_had_its_attempts_is_dead(bench: Bench) -> None:
    set_policy(bench, attempts=1, dead=b"dead")
    client = consumer(bench)
    bench.add()
    assert len(pushed(bench, client)) == 1
    bench.disconnect(client)
    bench.advance(0.001)
    assert bench.get("q") is None
    assert bench.get("dead") is not None


@pytest.mark.parametrize("onloss", ["requeue", "soon", "retry"])
def test_what_was_not_sent_when_the_connection_broke_was_not_delivered(
    bench: Bench, onloss: str
) -> None:
    set_policy(bench, attempts=2, dead=b"dead")
    client = consumer(bench, "q", "CREDIT", 5, "ONLOSS", onloss)
    sent = bench.add("q", "b", "RETRY", 100)
    assert pushed(bench, client) == [sent]
    bench.send(bench.me, "ADDJOB", "q", "b", 0, "RETRY", 100)
    assert bench.node.consumers.in_hand == 2
    bench.disconnect(client)  # in the same turn
    (unsent,) = bench.replies(bench.me)
    assert isinstance(unsent, bytes)
    bench.advance(0.001)
    for deliveries in range(2):
        other = consumer(bench, "q", "CREDIT", 5)
        assert unsent in pushed(bench, other)
        assert bench.number(unsent, b"additional-deliveries") == deliveries
        bench.disconnect(other)
        bench.advance(0.001)
    assert bench.get("q") is None


def test_many_jobs_are_queued_again_in_turns(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 1_000)
    for _ in range(500):
        bench.add()
    assert len(pushed(bench, client)) == 500
    bench.disconnect(client)
    bench.node.tick(bench.now)
    assert bench.number_queued() == A_TURN
    bench.advance(0.001)
    assert bench.number_queued() == 500


def test_a_job_that_another_client_has_by_then_stays_with_it(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 1)
    id = bench.add("q", "b", "RETRY", 5)
    assert pushed(bench, client) == [id]
    bench.ask(client, "CREDIT", 0)
    bench.advance(6)
    assert bench.get() == id
    bench.disconnect(client)
    bench.advance(1)
    assert bench.get() is None


def test_one_that_was_given_out_again_meanwhile_is_not_taken_back(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 1)
    id = bench.add()
    assert pushed(bench, client) == [id]
    bench.disconnect(client)
    bench("ENQUEUE", id)
    other = consumer(bench, "q", "CREDIT", 1)
    assert pushed(bench, other) == [id]
    bench.advance(0.001)
    assert bench.get() is None
    assert bench.node.consumers.in_hand == 1


@pytest.mark.parametrize("back", [("RESET",), ("HELLO", "2")])
def test_who_goes_back_to_resp2_loses_its_jobs(bench: Bench, back: tuple[str, ...]) -> None:
    client = consumer(bench, "q", "CREDIT", 1)
    id = bench.add()
    assert pushed(bench, client) == [id]
    bench.ask(client, *back)
    bench.advance(0.001)
    assert bench.raw(client) == b""
    assert bench.get() == id
    assert bench.node.consumers.by_client == {}


# ---- with others ------------------------------------------------------------------------------


def test_limits_and_groups_hold(bench: Bench) -> None:
    set_policy(bench, active=2, groups="fifo")
    client = consumer(bench, "q", "CREDIT", 10)
    ids = [bench.add("q", "b", "GROUP", group) for group in "aabc"]
    assert pushed(bench, client) == [ids[0], ids[2]]
    bench("ACKJOB", ids[0])
    bench.advance(0.001)
    assert pushed(bench, client) in ([ids[1]], [ids[3]])


def test_a_flush_forgets_the_jobs_and_not_the_client(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 1)
    first = bench.add()
    assert pushed(bench, client) == [first]
    bench("DEBUG", "FLUSHALL")
    bench.raw(client)
    id = bench.add()
    assert pushed(bench, client) == [id]


def test_a_node_that_leaves_says_so(bench: Bench) -> None:
    client = consumer(bench)
    bench.node.set_leaving(True)
    (message,) = bench.pushes(client)
    assert message[0] == b"stopped"
    assert message[1].startswith(b"LEAVING")
    assert "LEAVING" in bench.error_of(client, "CONSUME", "q", "CREDIT", 1)


def test_who_said_nothing_for_long_may_speak_when_the_node_leaves(bench: Bench) -> None:
    client = consumer(bench, "q", "CREDIT", 1)
    id = bench.add("q", "b", "RETRY", 10)
    assert pushed(bench, client) == [id]
    bench.advance(50)
    bench.node.set_leaving(True)
    bench.raw(client)
    assert bench.ask(client, "PING") == b"PONG"


def test_what_is_pushed_once_is_not_pushed_when_it_cannot_be_noted(bench: Bench) -> None:
    bench.node.journaling = True
    client = consumer(bench)
    bench.send(bench.me, "ADDJOB", "q", "often", 0)
    bench.send(bench.me, "ADDJOB", "q", "once", 0, "RETRY", 0, "REPLICATE", 1)
    bench.node.roll_back(b"-MISCONF\r\n")
    assert [message[3] for message in bench.pushes(client)] == [b"often"]
    assert bench.node.consumers.in_hand == 1


def test_after_a_failed_write_a_consumer_gets_jobs_again(bench: Bench) -> None:
    bench.node.journaling = True
    client = consumer(bench, "q", "CREDIT", 1)
    for _ in range(3):
        bench.send(bench.me, "ADDJOB", "q", "once", 0, "RETRY", 0)
    bench.node.set_trouble(False, "No space left on device")
    bench.node.roll_back(b"-MISCONF\r\n")
    bench.replies(bench.me)
    assert pushed(bench, client) == []
    bench.advance(1)
    bench.node.cron(bench.now)
    assert pushed(bench, client) == []
    assert bench.number_queued() == 2
    bench.node.set_trouble(False, "")
    bench.node.cron(bench.now)
    assert len(pushed(bench, client)) == 1
    assert bench.number_queued() == 1


def test_after_a_crash_the_file_has_what_was_pushed(bench: Bench, tmp_path: Path) -> None:
    bench.node.journaling = True
    client = consumer(bench, "q", "CREDIT", 1)
    first, second = bench.add(), bench.add()
    assert pushed(bench, client) == [first]
    again = loaded_again(bench, tmp_path)
    assert again.held(first)
    assert again.held(second)


def test_jobs_of_other_nodes_come_to_who_consumes() -> None:
    mesh = Mesh(3)
    client = consumer(mesh[1], "q", "CREDIT", 50)
    ids = [mesh.add(0) for _ in range(20)]
    mesh.advance(5)
    assert sorted(pushed(mesh[1], client)) == sorted(ids)


@pytest.mark.parametrize(
    "words",
    [
        ["q"],
        ["CREDIT", 5],
        ["q", "CREDIT"],
        ["q", "CREDIT", 0],
        ["q", "CREDIT", "x"],
        ["q", "CREDIT", MAX_CREDIT + 1],
        ["q", "CREDIT", 1, "ONLOSS", "forget"],
        ["q", "CREDIT", 1, "CREDIT"],
        ["WITHHEADERS", "CREDIT", 1],
    ],
)
def test_wrong_words_are_refused(bench: Bench, words: list[str | int]) -> None:
    client = bench.client()
    client.resp = 3
    assert "ERR" in bench.error_of(client, "CONSUME", *words)
    assert bench.node.consumers.by_client == {}


def test_queues_may_be_called_as_the_options(bench: Bench) -> None:
    client = consumer(bench, "onloss", "stop", "withheaders", "credit", "CREDIT", 1)
    id = bench.add("onloss")
    assert pushed(bench, client) == [id]


def test_it_needs_resp3(bench: Bench) -> None:
    assert "HELLO 3" in bench.error("CONSUME", "q", "CREDIT", 1)


@pytest.mark.parametrize("login", ["AUTH", "HELLO"])
def test_who_logs_in_as_one_who_may_not_have_what_it_gets_is_disconnected(
    bench: Bench, login: str
) -> None:
    for name in ("shop", "mail"):
        bench("ACL", "SETUSER", name, "on", "nopass", f"~{name}", "~both", "+@all")
    words = (3, "AUTH") if login == "HELLO" else ()
    for queue, goes in (("both", False), ("shop", True)):
        client = bench.client()
        bench.ask(client, "HELLO", 3, "AUTH", "shop", "x")
        assert bench.ask(client, "CONSUME", queue, "CREDIT", 5) == b"OK"
        bench.ask(client, login, *words, "mail", "x")
        assert bench.host.closed == ([client] if goes else [])
        bench.host.closed.clear()


def test_deleting_a_user_looks_at_all_clients_once(bench: Bench) -> None:
    bench("ACL", "SETUSER", "shop", "on", "nopass", "~*", "+@all")
    bench("ACL", "SETUSER", "mail", "on", "nopass", "~mail", "+@all")
    client = bench.client()
    bench.ask(client, "HELLO", 3, "AUTH", "shop", "x")
    bench.ask(client, "CONSUME", "q", "CREDIT", 5)
    client.log_in(bench.node.users.by_name[b"mail"])
    bench("ACL", "DELUSER", "shop")
    assert bench.host.closed == [client]
