"""BIND, UNBIND, BINDINGS and ADDJOB to a topic: what they accept, and their replies."""

import hiredis
import pytest

from disque_trio.node.core.shared.bindings import (
    MAX_BINDINGS,
    MAX_GAPS,
    MAX_QUEUE,
    MAX_TOPIC,
    Binding,
)
from disque_trio.node.core.shared.versions import Entry
from disque_trio.node.core.topics import SLICE
from disque_trio.protocol import bus
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench


def bind(bench: Bench, topic: str, *queues: str) -> None:
    for queue in queues:
        assert bench("BIND", topic, queue) == b"OK"


def published(bench: Bench, topic: str, *options: str | int) -> list[object]:
    """Return the array that ADDJOB @topic returns."""
    reply = bench("ADDJOB", f"@{topic}", "body", 0, *options)
    assert isinstance(reply, list), reply
    return reply


# ---- bindings -----------------------------------------------------------------------------------


def test_bindings_are_made_listed_and_taken_back(bench: Bench) -> None:
    assert bench("BINDINGS") == []
    bind(bench, "mail.*", "b", "a")
    bind(bench, "mail.#", "c")
    bind(bench, "news", "a")
    everything = [[b"mail.#", b"c"], [b"mail.*", b"a"], [b"mail.*", b"b"], [b"news", b"a"]]
    assert bench("BINDINGS") == everything
    assert bench("BINDINGS", "QUEUE", "a") == [[b"mail.*", b"a"], [b"news", b"a"]]
    assert bench("BINDINGS", "match", "mail") == [[b"mail.#", b"c"]]
    assert bench("BINDINGS", "MATCH", "mail.new", "queue", "a") == [[b"mail.*", b"a"]]
    assert bench.info("queues")["bindings"] == "4"
    assert bench("UNBIND", "mail.*", "b") == 1
    assert bench("UNBIND", "mail.*", "b") == 0
    assert bench("UNBIND", "mail.new", "a") == 0
    assert bench("BINDINGS", "MATCH", "mail.new") == [[b"mail.#", b"c"], [b"mail.*", b"a"]]


def test_a_second_bind_changes_nothing(bench: Bench) -> None:
    bind(bench, "t", "q")
    clock = bench.node.topics.bindings.clock
    bind(bench, "t", "q")
    assert bench.node.topics.bindings.clock == clock
    assert bench("BINDINGS") == [[b"t", b"q"]]


@pytest.mark.parametrize(
    ("topic", "queue", "problem"),
    [
        ("", "q", "a topic must have"),
        ("@t", "q", "a topic must have"),
        ("a b", "q", "a topic must have"),
        ("x" * (MAX_TOPIC + 1), "q", "a topic must have"),
        ("t", "", "a queue that is bound"),
        ("t", "@q", "a queue that is bound"),
        ("t", "x" * (MAX_QUEUE + 1), "a queue that is bound"),
    ],
)
def test_an_invalid_binding_is_refused(bench: Bench, topic: str, queue: str, problem: str) -> None:
    assert problem in bench.error("BIND", topic, queue)
    assert bench("BINDINGS") == []


def test_the_longest_names_that_may_be(bench: Bench) -> None:
    topic, queue = "x" * MAX_TOPIC, "q" * MAX_QUEUE
    bind(bench, topic, queue)
    assert len(published(bench, topic)) == 1
    assert bench.number_queued(queue) == 1


@pytest.mark.parametrize(
    "words", [["QUEUE"], ["QUEUE", "a", "QUEUE", "b"], ["MATCH", "a", "MATCH", "b"], ["ALL", "a"]]
)
def test_bindings_takes_nothing_else(bench: Bench, words: list[str]) -> None:
    assert bench.error("BINDINGS", *words) == "ERR syntax error"


def test_there_is_a_limit_to_their_number(bench: Bench) -> None:
    known = bench.node.topics.bindings
    for number in range(MAX_BINDINGS):
        binding = Binding(b"t", b"q%d" % number)
        known.put(Entry(binding.name, binding, 1, b"f" * 40, 0))
    assert "10000 bindings already" in bench.error("BIND", "t", "q")
    assert bench("BIND", "t", "q17") == b"OK"


def test_there_is_a_limit_to_those_that_match_in_many_ways(bench: Bench) -> None:
    known = bench.node.topics.bindings
    for number in range(MAX_GAPS):
        binding = Binding(b"a.#.b" if number % 2 else b"#.b", b"q%d" % number)
        known.put(Entry(binding.name, binding, 1, b"f" * 40, 0))
    assert "1000 bindings with #" in bench.error("BIND", "a.b.#.c", "q")
    bind(bench, "a.#", "q")
    bench("UNBIND", "#.b", "q0")
    bind(bench, "a.b.#.c", "q")


def test_c_nodes_have_no_bindings() -> None:
    mesh = Mesh(2)
    mesh.c_nodes.add(1)
    for peers in mesh.peers:
        peers.judge_extensions()
    assert mesh[0].error("BIND", "t", "q").startswith("NOEXT")


def test_a_full_disk_is_reported_and_nothing_changes(bench: Bench) -> None:
    bind(bench, "t", "a")
    bench.node.topics.sharing.keep = lambda names: "No space left on device"
    assert "the bindings cannot be written" in bench.error("BIND", "t", "b")
    assert "No space left" in bench.error("UNBIND", "t", "a")
    assert bench("BINDINGS", "MATCH", "t") == [[b"t", b"a"]]


def test_a_bind_is_not_confirmed_by_one_that_is_taken_back(bench: Bench) -> None:
    other = bench.client()
    bench.node.topics.sharing.keep = lambda names: "No space left on device"
    bench.send(bench.me, "BIND", "t", "q")
    bench.send(other, "BIND", "t", "q")
    for client in (bench.me, other):
        (reply,) = bench.replies(client)
        assert "No space left" in str(reply)
    assert bench("BINDINGS") == []


@pytest.mark.parametrize(
    "data",
    [
        [(1, b"")],
        [(1, Entry(b"t", Binding(b"t", b""), 9, b"f" * 40, 0).fields())],
        [(1, Entry(b"t @q", Binding(b"t", b"@q"), 9, b"f" * 40, 0).fields())],
        [(4, b"rubbish")],
    ],
)
def test_malformed_packets_change_nothing(data: list[tuple[int, bytes]]) -> None:
    mesh = Mesh(2)
    node = mesh[0].node
    packet = mesh[1].node.packets.fields(bus.BINDINGS, data)
    node.receive(mesh.ids[1], packet, mesh[0].now)
    assert node.bad_packets + node.topics.sharing.refused == 1
    assert node.topics.bindings.entries == {}


def test_all_nodes_know_a_binding_and_that_it_is_gone() -> None:
    mesh = Mesh(3)
    mesh.cut(0, 2)
    bind(mesh[0], "t", "q")
    mesh.settle()
    assert mesh[1]("BINDINGS") == [[b"t", b"q"]]
    assert mesh[2]("BINDINGS") == []
    mesh.join(0, 2)
    for _ in range(30):
        for bench in mesh.nodes:
            bench.node.cron(bench.now)
        mesh.advance(1)
    assert mesh[2]("BINDINGS") == [[b"t", b"q"]]
    assert mesh[2]("UNBIND", "t", "q") == 1
    mesh.settle()
    assert [bench("BINDINGS") for bench in mesh.nodes] == [[], [], []]


def test_a_hard_reset_forgets_them_and_flushall_does_not(bench: Bench) -> None:
    bind(bench, "t", "q")
    bench.node.flush()
    assert bench("BINDINGS") == [[b"t", b"q"]]
    bench("CLUSTER", "RESET", "HARD")
    assert bench("BINDINGS") == []
    assert published(bench, "t") == []


# ---- ADDJOB -------------------------------------------------------------------------------------


def test_each_bound_queue_gets_one_job_with_its_options(bench: Bench) -> None:
    bind(bench, "mail.*", "b", "a")
    bind(bench, "#", "b")
    bind(bench, "news", "c")
    ids = published(bench, "mail.new", "RETRY", 77, "PRIORITY", 3, "HEADERS", 1, "name", "value")
    assert ids == [*bench.get_all("a"), *bench.get_all("b")]
    assert bench.number_queued("c") == 0
    for id, queue in zip(ids, (b"a", b"b"), strict=True):
        assert isinstance(id, bytes)
        shown = bench.show(id)
        assert (shown[b"queue"], shown[b"retry"], shown[b"priority"]) == (queue, 77, 3)
        assert shown[b"headers"] == [b"name", b"value"]
        assert shown[b"body"] == b"body"
    assert bench.node.store.total_added == 2


def test_an_unbound_topic_stores_nothing(bench: Bench) -> None:
    bind(bench, "mail", "q")
    assert published(bench, "news") == []
    assert bench.node.held() == 0
    assert "@news" not in bench.node.queues.by_name


def test_the_policy_of_each_queue_holds(bench: Bench) -> None:
    bind(bench, "t", "a", "b")
    bench("QSET", "a", "RETRY", 55)
    a, b = published(bench, "t")
    assert isinstance(a, bytes)
    assert isinstance(b, bytes)
    assert (bench.number(a, b"retry"), bench.number(b, b"retry")) == (55, 300)


def test_an_error_stands_in_the_place_of_the_id(bench: Bench) -> None:
    bind(bench, "t", "a", "b", "c")
    bench.add("b")
    bench("PAUSE", "c", "in")
    a, b, c = published(bench, "t", "MAXLEN", 1)
    assert bench.get_all("a") == [a]
    assert str(b).startswith("MAXLEN ")
    assert str(c).startswith("PAUSED ")
    assert bench.number_queued("b") == 1


def test_one_error_that_all_have_stands_alone(bench: Bench) -> None:
    bind(bench, "t", "a", "b")
    bench("PAUSE", "a", "in")
    bench("PAUSE", "b", "in")
    assert bench.error("ADDJOB", "@t", "body", 0).startswith("PAUSED ")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["@t", "body", "0", "RETRY", "x"], "RETRY"),
        (["@t", "body", "x"], "timeout"),
        (["@t", "body", "0", "NONSENSE"], "syntax error"),
        (["@", "body", "0"], "a topic must have"),
        (["@@t", "body", "0"], "a topic must have"),
        (["@" + "x" * 256, "body", "0"], "a topic must have"),
        (["@unbound", "body", "0", "RETRY", "x"], "RETRY"),
    ],
)
def test_what_is_wrong_for_all_is_one_error(bench: Bench, words: list[str], problem: str) -> None:
    bind(bench, "t", "a", "b")
    assert problem in bench.error("ADDJOB", *words)
    assert bench.node.held() == 0


def test_a_key_is_one_of_each_queue(bench: Bench) -> None:
    bind(bench, "t", "a", "b")
    first = published(bench, "t", "UNIQUE", "key")
    bind(bench, "t", "c")
    again = published(bench, "t", "UNIQUE", "key")
    assert again[:2] == first
    assert bench.get_all("c") == again[2:]


def test_a_queue_with_such_a_name_still_delivers_its_jobs(bench: Bench) -> None:
    node = bench.node
    job = node.store.make_job(b"@t", b"body", 1, 0, 300, 86_400)
    node.replication.place(job)
    bind(bench, "t", "q")
    (id,) = published(bench, "t")
    assert bench.get_all("@t") == [job.id]
    assert bench.get_all("q") == [id]


def test_many_queues_get_theirs_in_slices_in_the_order_of_their_names(bench: Bench) -> None:
    queues = [f"q{number:04}" for number in range(3 * SLICE)]
    bind(bench, "t", *reversed(queues))
    other = bench.client()
    bench.send(bench.me, "ADDJOB", "@t", "body", 0)
    assert bench.node.held() == SLICE
    assert bench.replies(bench.me) == []
    assert bench.ask(other, "PING") == b"PONG"
    assert bench.me.in_slices == 2 * SLICE
    bench.node.tick(bench.now)
    assert bench.node.held() == 2 * SLICE
    assert bench.node.next_wake() == bench.now
    bench.node.tick(bench.now)
    (ids,) = bench.replies(bench.me)
    assert ids == [bench.get(queue) for queue in queues]
    assert bench.me in bench.node.woken
    assert (bench.me.in_slices, bench.me.in_flight) == (0, 0)
    assert bench.node.topics.waiting == {}


def test_an_answer_is_not_lost_where_the_file_takes_longer_than_a_turn(bench: Bench) -> None:
    bind(bench, "t", *[f"q{number}" for number in range(SLICE + 1)])
    bench.send(bench.me, "ADDJOB", "@t", "body", 0)
    bench.node.tick(bench.now)
    bench.node.woken.clear()  # the driver looks at them, but does not commit yet
    (ids,) = bench.replies(bench.me)
    assert len(ids) == SLICE + 1  # type: ignore[arg-type]


def test_large_bodies_are_added_in_smaller_slices(bench: Bench) -> None:
    bind(bench, "t", "a", "b", "c")
    bench.send(bench.me, "ADDJOB", "@t", "x" * 600_000, 0)
    assert bench.node.held() == 1
    bench.send(other := bench.client(), "ADDJOB", "@t", "body", 0, *["ASYNC"] * 1_000)
    assert bench.node.held() == 2
    for _ in range(4):
        bench.node.tick(bench.now)
    assert [len(bench.replies(client)) for client in (bench.me, other)] == [1, 1]
    assert bench.node.held() == 6


def test_a_turn_adds_no_more_however_many_ask(bench: Bench) -> None:
    bind(bench, "t", *[f"q{number}" for number in range(SLICE // 2)])
    clients = [bench.client() for _ in range(4)]
    for client in clients:
        bench.send(client, "ADDJOB", "@t", "body", 0)
    assert bench.node.held() == SLICE
    assert [len(bench.replies(client)) for client in clients] == [1, 1, 0, 0]
    bench.node.tick(bench.now)
    bench.node.tick(bench.now)
    assert [len(bench.replies(client)) for client in clients[2:]] == [1, 1]


def test_too_many_at_once_are_refused(bench: Bench) -> None:
    bench.node.topics.most_left = 10
    bind(bench, "t", *[f"q{number}" for number in range(11)])
    assert "being added to topics" in bench.error("ADDJOB", "@t", "body", 0)
    assert bench.node.held() == 0


def test_what_others_have_yet_to_add_counts(bench: Bench) -> None:
    bench.node.topics.most_left = 3 * SLICE
    bind(bench, "t", *[f"q{number}" for number in range(2 * SLICE + 1)])
    bench.send(client := bench.client(), "ADDJOB", "@t", "body", 0)
    assert "being added to topics" in bench.error("ADDJOB", "@t", "body", 0)
    bench.finish(client)
    bench("ADDJOB", "@t", "body", 0)
    assert bench.node.held() == 2 * (2 * SLICE + 1)


def test_a_client_that_hangs_up_leaves_the_rest_undone(bench: Bench) -> None:
    bind(bench, "t", *[f"q{number}" for number in range(3 * SLICE)])
    client = bench.client()
    bench.send(client, "ADDJOB", "@t", "body", 0)
    bench.node.tick(bench.now)
    bench.disconnect(client)
    bench.node.tick(bench.now)
    bench.node.commit()
    assert bench.node.held() == 2 * SLICE
    assert bench.node.topics.waiting == {}
    assert len(published(bench, "t")) == 3 * SLICE


def test_jobs_flushed_between_slices_are_reported(bench: Bench) -> None:
    bind(bench, "t", *[f"q{number}" for number in range(SLICE + 2)])
    bench.send(bench.me, "ADDJOB", "@t", "body", 0)
    bench.node.flush()
    (reply,) = bench.replies(bench.me)
    assert isinstance(reply, list)
    assert [isinstance(entry, hiredis.ReplyError) for entry in reply] == [False] * SLICE + [
        True
    ] * 2
    assert bench.me.in_slices == 0
    bench.node.tick(bench.now)
    assert bench.node.held() == 0


def test_in_a_group_and_in_a_pipeline(bench: Bench) -> None:
    bind(bench, "t", *[f"q{number:03}" for number in range(SLICE + 1)])
    bind(bench, "u", "a", "b")
    for line in ("MULTI", "ADDJOB @t x 0", "QLEN a", "ADDJOB @u x 0", "ADDJOB @none x 0"):
        bench(*line.split())
    bench.send(bench.me, "EXEC")
    while bench.me.in_slices:
        bench.node.tick(bench.now)
    ((whole, length, two, none),) = bench.replies(bench.me)
    assert (len(whole), length, len(two), none) == (SLICE + 1, 0, 2, [])
    assert bench.get_all("a", "b") == two
    bench.now += 1
    bench.send(bench.me, "ADDJOB", "@u", "x", 0)
    bench.send(bench.me, "ADDJOB", "c", "x", 0)
    two, one = bench.replies(bench.me)
    assert (bench.get_all("a", "b"), bench.get("c")) == (two, one)


def test_replies_that_nobody_wants_are_left_out(bench: Bench) -> None:
    bind(bench, "t", *[f"q{number}" for number in range(SLICE + 1)])
    bench.send(bench.me, "CLIENT", "REPLY", "SKIP")
    bench.send(bench.me, "ADDJOB", "@t", "x", 0)
    bench.send(bench.me, "ADDJOB", "q", "x", 0)
    bench.node.tick(bench.now)
    assert bench.replies(bench.me) == [bench.get("q")]


def test_what_is_not_in_the_file_is_not_confirmed(bench: Bench) -> None:
    bind(bench, "t", *[f"q{number:03}" for number in range(SLICE + 1)])
    bind(bench, "u", "a", "b")
    bench.node.journaling = True
    bench.send(bench.me, "ADDJOB", "@u", "x", 0)
    bench.node.roll_back(b"-MISCONF now\r\n")
    assert str(bench.replies(bench.me)) == "[ReplyError('MISCONF now')]"
    bench.now += 1
    bench.send(bench.me, "ADDJOB", "@t", "x", 0)
    bench.node.commit()  # the first ones are in the file
    bench.node.tick(bench.now)
    bench.node.roll_back(b"-MISCONF now\r\n")
    ((*ids, last),) = bench.replies(bench.me)
    assert all(isinstance(id, bytes) for id in ids)
    assert str(last) == "MISCONF now"


def test_workers_that_wait_get_the_jobs(bench: Bench) -> None:
    bind(bench, "t", "a", "b")
    workers = [bench.block("a"), bench.block("b")]
    assert published(bench, "t") == [bench.got(worker) for worker in workers]


def test_short_memory_is_told_for_those_it_concerns() -> None:
    bench = Bench(maxmemory=1_000_000)
    bind(bench, "t", *[f"q{number}" for number in range(4)])
    reply = published(bench, "t", "TTL", 1000)
    assert len(reply) == 4
    body = "x" * 300_000
    reply = bench("ADDJOB", "@t", body, 0)  # type: ignore[assignment]
    assert isinstance(reply[0], bytes)
    assert str(reply[-1]).startswith(("OOM", "NOREPL"))


# ---- other commands that name queues ------------------------------------------------------------


def test_dead_letters_do_not_go_to_a_topic(bench: Bench) -> None:
    assert "begins a topic" in bench.error("QSET", "q", "DEAD", "@t")
    assert bench("QGET") == []


def test_a_schedule_adds_to_a_topic(bench: Bench) -> None:
    bind(bench, "t", "a", "b")
    assert bench("CRON", "SET", "s", "@every 10s", "@t", "body") == b"OK"
    assert "a topic must have" in bench.error("CRON", "SET", "s", "@every 10s", "@", "body")
    for _ in range(20):
        bench.advance(1)
        bench.node.commit()
    assert (bench.number_queued("a"), bench.number_queued("b")) == (2, 2)
    assert bench.info("stats")["total_ticks"] == "2"
    ran = bench("CRON", "RUN", "s")
    assert isinstance(ran, list)
    assert len(ran) == 2


def test_a_tick_that_some_queues_refuse_is_tried_again_for_these(bench: Bench) -> None:
    bind(bench, "t", "a", "b")
    bench("PAUSE", "b", "in")
    bench("CRON", "SET", "s", "@every 1m", "@t", "body")
    for _ in range(65):
        bench.advance(1)
        bench.node.commit()
    assert bench.fields("CRON", "GET", "s")[b"problem"].startswith(b"PAUSED ")
    assert bench.number_queued("a") == 1
    bench("PAUSE", "b", "none")
    for _ in range(10):
        bench.advance(1)
        bench.node.commit()
    assert (bench.number_queued("a"), bench.number_queued("b")) == (1, 1)
    assert b"problem" not in bench.fields("CRON", "GET", "s")
