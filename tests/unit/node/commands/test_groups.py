"""MULTI, EXEC and DISCARD: commands that run in one turn, without others in between."""

import hiredis
import pytest

from disque_trio.node.core.node import Node
from disque_trio.respserver.batches import SLICE
from disque_trio.respserver.client import Client
from disque_trio.respserver.groups import LASTS, MOST_WORDS
from disque_trio.respserver.machine import LONG
from disque_trio.respserver.slices import do_slice
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

ABORTED = "EXECABORT Transaction discarded because of previous errors."


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def three() -> Mesh:
    return Mesh(3)


def group(bench: Bench, *requests: str) -> list[object]:
    """Return the replies to ``requests`` as a group, all of which must be accepted."""
    assert bench("MULTI") == b"OK"
    for request in requests:
        assert bench(*request.split()) == b"QUEUED"
    replies = bench("EXEC")
    assert isinstance(replies, list), replies
    assert len(replies) == len(requests)
    return replies


def test_nothing_is_done_before_exec_and_then_all_in_order(bench: Bench) -> None:
    assert bench("MULTI") == b"OK"
    for body in ("a", "b"):
        assert bench("ADDJOB", "q", body, 0) == b"QUEUED"
    assert bench("QLEN", "q") == b"QUEUED"
    other = bench.client()
    assert bench.ask(other, "QLEN", "q") == 0
    first, second, length = bench("EXEC")  # type: ignore[misc]
    assert length == 2
    assert bench.get_all() == [first, second]
    assert bench.me.group is None


def test_an_empty_group_is_an_empty_array(bench: Bench) -> None:
    assert group(bench) == []


def test_a_command_that_fails_does_not_stop_those_behind_it(bench: Bench) -> None:
    bad, id = group(bench, "ADDJOB q body 0 DELAY x", "ADDJOB q body 0")
    assert isinstance(bad, hiredis.ReplyError)
    assert "DELAY" in str(bad)
    assert bench.get() == id


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ("NONSENSE", "unknown command"),
        ("ADDJOB q", "wrong number of arguments"),
        ("MONITOR", "not allowed inside"),
        ("SHUTDOWN", "not allowed inside"),
        ("RESTART", "not allowed inside"),
        ("CLIENT REPLY OFF", "not allowed inside"),
        ("client reply skip", "not allowed inside"),
    ],
)
def test_a_refused_command_aborts_the_group(bench: Bench, request_: str, error: str) -> None:
    bench("MULTI")
    assert bench("ADDJOB", "q", "before", 0) == b"QUEUED"
    assert error in bench.error(*request_.split())
    assert bench("ADDJOB", "q", "behind", 0) == b"QUEUED"
    assert bench.error("EXEC") == ABORTED
    assert bench.number_queued() == 0
    assert bench("PING") == b"PONG"
    assert bench.error("EXEC") == "ERR EXEC without MULTI"


def test_discard_forgets_the_group(bench: Bench) -> None:
    bench("MULTI")
    bench("ADDJOB", "q", "body", 0)
    assert "unknown command" in bench.error("NONSENSE")
    assert bench("DISCARD") == b"OK"
    assert bench.error("DISCARD") == "ERR DISCARD without MULTI"
    assert bench.number_queued() == 0
    assert group(bench, "PING") == [b"PONG"]


def test_groups_are_not_nested_and_there_is_nothing_to_watch(bench: Bench) -> None:
    assert "nothing to WATCH" in bench.error("WATCH", "q")
    assert bench("UNWATCH") == b"OK"
    bench("MULTI")
    assert bench.error("MULTI") == "ERR MULTI calls can not be nested"
    assert bench.error("WATCH", "q") == "ERR WATCH inside MULTI is not allowed"
    assert bench("UNWATCH") == b"QUEUED"
    assert bench("EXEC") == [b"OK"]


def test_exec_with_arguments_ends_the_group(bench: Bench) -> None:
    bench("MULTI")
    bench("ADDJOB", "q", "body", 0)
    assert bench.error("EXEC", "now") == (
        "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command"
    )
    assert bench("QLEN", "q") == 0


def test_names_may_be_in_any_case(bench: Bench) -> None:
    bench("multi")
    assert bench("addjob", "q", "body", 0) == b"QUEUED"
    assert len(bench("exec")) == 1  # type: ignore[arg-type]


# ---- what would wait ------------------------------------------------------------------------


@pytest.mark.parametrize("resp", [2, 3])
def test_getjob_does_not_wait(bench: Bench, resp: int) -> None:
    bench("HELLO", resp)
    replies = group(bench, "GETJOB FROM q", "GETJOB TIMEOUT 5000 FROM q", "ADDJOB q b 0")
    assert replies[:2] == [None, None]
    assert not bench.me.blocked
    assert bench.queue()[b"blocked"] == 0


def test_getjob_takes_what_the_group_added(bench: Bench) -> None:
    id, taken = group(bench, "ADDJOB q body 0", "GETJOB FROM q")
    assert taken == [[b"q", id, b"body"]]


def test_waiting_clients_are_served_after_the_group(bench: Bench) -> None:
    waiting = bench.block("q")
    first, taken, second = group(bench, "ADDJOB q a 0", "GETJOB FROM q", "ADDJOB q b 0")
    assert bench.ids(taken) == [first]
    assert bench.got(waiting) == second


def test_many_ids_are_done_at_once(bench: Bench) -> None:
    ids = [bench.add() for _ in range(3 * SLICE)]
    bench("MULTI")
    bench("ACKJOB", *ids)
    bench("QLEN", "q")
    assert bench("EXEC") == [len(ids), 0]
    assert not bench.me.in_slices
    bench("MULTI")
    bench("ACKJOB", *ids, "nonsense")
    (bad,) = bench("EXEC")  # type: ignore[misc]
    assert str(bad) == "BADID Invalid Job ID format."
    # Outside of a group, they run in slices as before.
    bench.send(bench.me, "ACKJOB", *ids)
    assert bench.me.in_slices


def test_a_node_that_leaves_says_so(bench: Bench) -> None:
    bench("CLUSTER", "LEAVING", "yes")
    (refused,) = group(bench, "GETJOB FROM q")
    assert str(refused).startswith("LEAVING")


# ---- the connection -------------------------------------------------------------------------


def test_quit_and_reset_are_served_at_once(bench: Bench) -> None:
    bench("MULTI")
    bench("ADDJOB", "q", "body", 0)
    assert bench("RESET") == b"RESET"
    assert bench.error("EXEC") == "ERR EXEC without MULTI"
    bench("MULTI")
    bench("ADDJOB", "q", "body", 0)
    assert bench("QUIT") == b"OK"
    assert bench.me.close
    assert bench.number_queued() == 0


def test_hello_changes_the_protocol_for_what_is_behind_it(bench: Bench) -> None:
    bench("MULTI")
    bench("HELLO", 3)
    bench("SHOW", "D-11111111-111111111111111111111111-05a1")
    bench.send(bench.me, "EXEC")
    bench.finish(bench.me)
    data = bench.raw(bench.me)
    assert data.startswith(b"*2\r\n%7\r\n")
    assert data.endswith(b"_\r\n")


def test_a_client_that_loses_its_permission_in_the_group_has_the_rest_refused() -> None:
    bench = Bench(password=b"secret")
    assert bench.error("MULTI") == "NOAUTH Authentication required."
    assert bench("AUTH", "secret") == b"OK"
    wrong, refused = group(bench, "AUTH wrong", "ADDJOB q body 0")
    assert str(wrong) == "ERR invalid password"
    assert str(refused) == "NOAUTH Authentication required."
    assert bench.number_queued() == 0


def test_reset_in_a_group_may_take_the_permission_away() -> None:
    bench = Bench(password=b"secret")
    bench("AUTH", "secret")
    bench("MULTI")
    bench("RESET")
    assert bench.error("EXEC") == "NOAUTH Authentication required."


def test_replies_that_nobody_wants_are_left_out_as_a_whole(bench: Bench) -> None:
    bench.send(bench.me, "CLIENT", "REPLY", "OFF")
    for line in ("MULTI", "ADDJOB q a 0", "PING", "EXEC"):
        bench.send(bench.me, *line.split())
    assert bench("CLIENT", "REPLY", "ON") == b"OK"
    assert bench.number_queued() == 1
    bench("MULTI")
    bench("ADDJOB", "q", "b", 0)
    bench("PING")
    bench.send(bench.me, "DISCARD")
    bench.raw(bench.me)
    bench.send(bench.me, "CLIENT", "REPLY", "SKIP")
    bench.send(bench.me, "MULTI")
    assert bench("PING") == b"QUEUED"
    assert bench("EXEC") == [b"PONG"]


def test_whoever_watches_sees_the_commands_as_they_are_run(bench: Bench) -> None:
    monitor = bench.client()
    bench.ask(monitor, "MONITOR")
    group(bench, "PING", "ECHO x")
    bench("MULTI")
    bench("NONSENSE")
    bench("EXEC")
    shown = [str(line).split("] ")[1] for line in bench.replies(monitor)]
    assert [line.replace('"', "").strip("'").lower() for line in shown] == [
        "multi", "exec", "ping", "echo x", "multi", "exec",
    ]  # fmt: skip
    bench.send(monitor, "MULTI")
    assert "cannot say MULTI" in str(bench.replies(monitor)[-1])


def test_a_client_that_disconnects_leaves_nothing_behind(bench: Bench) -> None:
    client = bench.client()
    bench.ask(client, "MULTI")
    bench.ask(client, "ADDJOB", "q", "body", 0)
    bench.disconnect(client)
    assert bench.number_queued() == 0
    assert bench("QLEN", "q") == 0


def test_the_counters_know_what_was_run(bench: Bench) -> None:
    group(bench, "PING", "PING")
    fields = bench.info("commandstats")
    assert fields["cmdstat_ping"].startswith("calls=2,")
    assert fields["cmdstat_exec"].startswith("calls=1,")


def test_a_crashing_command_ends_the_connection_but_not_the_node(bench: Bench) -> None:
    def breaks(node: object, client: object, args: list[bytes]) -> None:
        raise ZeroDivisionError

    bench.node.commands[b"time"].handler = breaks
    client = bench.client()
    for line in ("MULTI", "PING", "TIME", "ADDJOB q b 0"):
        bench.send(client, *line.split())
    bench.send(client, "EXEC")
    with pytest.raises(ZeroDivisionError):
        bench.finish(client)
    # Nobody could tell where the array ends.
    assert client.close
    assert not bench.node.in_group
    assert bench.number_queued() == 0
    assert group(bench, "PING") == [b"PONG"]
    waiting = bench.block("q")
    id = bench.add()
    assert bench.got(waiting) == id


# ---- limits ---------------------------------------------------------------------------------


def test_a_group_has_a_limit_and_holds_nothing_above_it(bench: Bench) -> None:
    bench("MULTI")
    words = ["x"] * (MOST_WORDS // 2 - 1)
    assert bench("ACKJOB", *words) == b"QUEUED"
    assert bench("ACKJOB", *words) == b"QUEUED"
    assert "the group is too large" in bench.error("PING")
    assert bench("PING") == b"QUEUED"
    assert bench.me.group is not None
    assert bench.me.group.requests == []
    assert bench.error("EXEC") == ABORTED


def test_a_command_refused_for_lack_of_memory_aborts_the_group() -> None:
    bench = Bench()
    bench.add(body="x" * 2000)
    bench("MULTI")
    bench.node.memory.set_limit(2000)
    assert bench.error("ADDJOB", "q", "x", 0).startswith("OOM")
    assert bench.error("EXEC") == ABORTED


# ---- the append-only file -------------------------------------------------------------------


def test_a_file_that_cannot_be_written_aborts_the_group(bench: Bench) -> None:
    bench("MULTI")
    bench.node.set_trouble(False, "disk full")
    assert bench.error("ADDJOB", "q", "body", 0).startswith("MISCONF")
    assert bench("QLEN", "q") == b"QUEUED"
    assert bench.error("EXEC") == ABORTED


def test_a_file_that_fails_between_multi_and_exec_keeps_all_from_being_done(bench: Bench) -> None:
    bench("MULTI")
    bench("GETJOB", "FROM", "q")
    bench("ADDJOB", "q", "body", 0)
    bench.node.set_trouble(False, "disk full")
    assert bench.error("EXEC").startswith(
        "EXECABORT Transaction discarded because of: MISCONF Errors writing"
    )
    bench.node.set_trouble(False, "")
    assert bench("QLEN", "q") == 0


def test_what_is_not_in_the_file_is_not_confirmed_one_by_one(bench: Bench) -> None:
    bench.node.journaling = True
    for line in ("PING", "MULTI", "PING", "ADDJOB q body 0", "QLEN q", "ADDJOB q b 0", "EXEC"):
        bench.send(bench.me, *line.split())
    bench.send(bench.me, "ECHO", "behind")
    bench.node.roll_back(b"-MISCONF now\r\n")
    *_, replies, behind = bench.replies(bench.me)
    assert isinstance(replies, list)
    assert [str(reply) for reply in replies] == [str(b"PONG"), "MISCONF now", "1", "MISCONF now"]
    assert behind == b"behind"


# ---- copies ---------------------------------------------------------------------------------


def test_the_array_is_whole_when_the_last_job_has_its_copies(three: Mesh) -> None:
    bench = three[0]
    bench("MULTI")
    for line in ("PING", "ADDJOB q a 0", "QLEN q", "ADDJOB q b 0 REPLICATE 1", "ADDJOB q c 0"):
        bench(*line.split())
    bench.send(bench.me, "EXEC")
    assert bench.raw(bench.me) == b"*5\r\n+PONG\r\n"
    assert bench.me.in_flight == 4
    # The next jobs may begin to get their copies; everything else waits for the replies.
    assert bench.node.may_overlap([b"ADDJOB", b"q", b"b", b"0"])
    bench.send(bench.me, "ADDJOB", "q", "d", 0)
    three.settle()
    replies = bench.replies(bench.me)
    # The head and the PONG were sent before.
    a, length, b, c, d = replies
    assert length == 0  # a job is queued once it has its copies
    assert len({a, b, c, d}) == 4
    assert three.holders(a) == three.holders(c) == [0, 1, 2]  # type: ignore[arg-type]
    assert three.holders(b) == [0]  # type: ignore[arg-type]


def test_jobs_that_get_no_copies_are_refused_in_their_place(three: Mesh) -> None:
    bench = three[0]
    three.isolate(0)
    bench("MULTI")
    for line in ("ADDJOB q a 50", "PING", "ADDJOB q b 100"):
        bench(*line.split())
    bench.send(bench.me, "EXEC")
    head = bench.raw(bench.me)
    assert head == b"*3\r\n"
    three.advance(1)
    first, pong, last = bench.replies(bench.me)
    assert str(first).startswith("NOREPL")
    assert pong == b"PONG"
    assert str(last).startswith("NOREPL")


def test_a_client_that_disconnects_behind_exec_takes_back_what_has_no_copies(three: Mesh) -> None:
    bench = three[0]
    three.isolate(0)
    client = bench.client()
    for line in ("MULTI", "ADDJOB q a 0", "ADDJOB q b 0", "EXEC"):
        bench.send(client, *line.split())
    assert client.in_flight == 2
    bench.disconnect(client)
    three.rejoin(0)
    three.advance(5)
    assert all(bench.node.held() == 0 for bench in (three[0], three[1], three[2]))


def test_copies_of_a_group_that_is_not_on_disk_are_not_confirmed(three: Mesh) -> None:
    bench = three[0]
    bench.node.journaling = True
    for line in ("MULTI", "ADDJOB q a 0 ASYNC", "ADDJOB q b 0", "ADDJOB q c 0 REPLICATE 1", "EXEC"):
        bench.send(bench.me, *line.split())
    bench.node.roll_back(b"-MISCONF now\r\n")
    first = bench.raw(bench.me)
    assert first == b"+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n-MISCONF now\r\n"
    three.advance(1)
    id, refused = bench.replies(bench.me)
    assert isinstance(id, bytes)
    assert str(refused) == "MISCONF now"


def test_replies_with_copies_that_nobody_wants_are_left_out(three: Mesh) -> None:
    bench = three[0]
    bench.send(bench.me, "CLIENT", "REPLY", "OFF")
    for line in ("MULTI", "ADDJOB q a 0", "PING", "ADDJOB q b 0", "EXEC"):
        bench.send(bench.me, *line.split())
    three.settle()
    assert bench.raw(bench.me) == b""
    assert bench("CLIENT", "REPLY", "ON") == b"OK"
    assert bench.number_queued() == 2


# ---- limits of replies --------------------------------------------------------------------------


def most_replies(monkeypatch: pytest.MonkeyPatch, bench: Bench, limit: int) -> None:
    """Let clients have ``limit`` bytes of unread replies."""
    monkeypatch.setattr(bench.host, "most_replies", lambda client: limit)


def test_replies_beyond_the_limit_end_the_client_but_not_the_group(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add("big", "x" * 1_000)
    most_replies(monkeypatch, bench, 10_000)
    client = bench.client()
    for request in ("MULTI", *["QPEEK big 1"] * 20, "ADDJOB after body 0", "EXEC"):
        bench.send(client, *request.split())
    bench.finish(client)
    *_, last = bench.replies(client)
    assert "replies of the group are too long" in str(last)
    assert client.close
    assert bench.number_queued("after") == 1


def test_no_more_than_the_limit_and_one_reply_is_held_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add("big", "x" * 1_000)
    most_replies(monkeypatch, bench, 10_000)
    client = bench.client()
    held: list[int] = []
    command = bench.node.commands[b"qlen"]
    look = command.handler

    def looking(node: Node, asking: Client, args: list[bytes]) -> None:
        held.append(sum(len(entry.reply or b"") for entry in asking.reply_queue))
        look(node, asking, args)

    monkeypatch.setattr(command, "handler", looking)
    for request in ("MULTI", *["QPEEK big 1", "QLEN big"] * 50, "EXEC"):
        bench.send(client, *request.split())
    bench.finish(client)
    assert len(held) == 50
    assert max(held) < 12_000
    assert sum(map(len, client.out)) < 2_000


def test_replies_at_the_limit_are_sent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    most_replies(monkeypatch, bench, len(b"+PONG\r\n") * 3)
    assert group(bench, "PING", "PING", "PING") == [b"PONG"] * 3
    assert not bench.me.close
    bench("MULTI")
    for _ in range(4):
        assert bench("PING") == b"QUEUED"
    assert "too long" in bench.error("EXEC")
    assert bench.me.close


def test_replies_behind_a_job_that_waits_for_copies_count_as_well(
    three: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = three[0]
    bench.add("big", "x" * 1_000, "REPLICATE", 1)
    most_replies(monkeypatch, bench, 10_000)
    client = bench.client()
    for request in ("MULTI", "ADDJOB q a 0", *["QPEEK big 1"] * 20, "EXEC"):
        bench.send(client, *request.split())
    bench.finish(client)
    assert client.close
    assert sum(len(entry.reply or b"") for entry in list(client.reply_queue)[1:]) == 0
    three.settle()
    *_, last = bench.replies(client)
    assert "too long" in str(last)
    assert bench.number_queued("q") == 1


def test_a_long_reply_below_the_limit_is_sent_whole(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [bench.add() for _ in range(700)]
    bench.node.batches.size = 5  # so the reply is made in many pieces
    most_replies(monkeypatch, bench, 60_000)
    ((cursor, found), length) = group(bench, "JSCAN BUSYLOOP", "QLEN q")  # type: ignore[misc]
    assert (cursor, length) == (b"0", 700)
    assert sorted(found) == sorted(ids)
    most_replies(monkeypatch, bench, 20_000)
    bench("MULTI")
    bench("JSCAN", "BUSYLOOP")
    assert "too long" in bench.error("EXEC")
    assert bench.me.close


def turns_of(bench: Bench, *requests: str) -> int:
    """In how many turns ``requests`` run as a group."""
    client = bench.client()
    for request in ("MULTI", *requests, "EXEC"):
        bench.send(client, *request.split())
    turns = 0
    while client.in_slices:
        turns += 1
        do_slice(bench.node, bench.now)
    assert len(bench.replies(client)[-1]) == len(requests)  # type: ignore[arg-type]
    return turns


def test_commands_that_take_time_leave_room_for_others(bench: Bench) -> None:
    """Even if none of them takes so long that it alone would."""
    few = turns_of(bench, *["QSTAT q"] * 300)
    time = 0

    def clock() -> int:
        nonlocal time
        time += LONG // 3
        return time

    bench.node.clock = clock
    assert turns_of(bench, *["QSTAT q"] * 300) > few + 300 * LONG // 3 // LASTS


def test_what_only_reads_fails_when_the_group_has_read_too_much(bench: Bench) -> None:
    bench.node.batches.most_read = 20_000
    *read, length, added = group(bench, *["COMMAND DOCS"] * 100, "QLEN q", "ADDJOB q body 0")
    done = [isinstance(reply, list) for reply in read]
    assert 0 < sum(done) < 50
    assert done == sorted(done, reverse=True)
    assert "look at too much" in str(read[-1])
    assert length == 0
    assert bench.get_all() == [added]
