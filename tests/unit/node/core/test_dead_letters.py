"""Jobs that nobody can process: attempts, dead letters, and their way back."""

from pathlib import Path

import pytest

from disque_trio.aof.loader import Loader
from disque_trio.node.commands import addjob
from disque_trio.node.commands.dead_letters import MAX_MATCHES
from disque_trio.node.core.jobs import job
from disque_trio.node.core.jobs.job import ACTIVE
from disque_trio.protocol import bus
from disque_trio.protocol.trailer import (
    BY_ATTEMPTS,
    BY_EXPIRY,
    BY_REDRIVE,
    BY_WORKER,
)
from tests.support.node_bench import Bench, letter_of, loaded_again
from tests.support.policies import set_policy


def test_a_job_that_was_delivered_often_enough_becomes_a_dead_letter(bench: Bench) -> None:
    set_policy(bench, attempts=3, dead=b"dead", dead_ttl=1000)
    id = bench.add("q", "the body")
    for _ in range(2):
        assert bench.get() == id
        assert bench("NACK", id) == 1
    assert bench.get() == id
    assert bench("NACK", id, "REASON", "no such user") == 1
    assert bench.get() is None
    assert not bench.held(id)
    entry = bench("GETJOB", "NOHANG", "FROM", "dead")
    assert entry[0][0] == b"dead"
    assert entry[0][2] == b"the body"
    dead = entry[0][1]
    letter = letter_of(bench, dead)
    assert (letter.first, letter.queue, letter.why) == (id, b"q", BY_ATTEMPTS)
    assert (letter.attempts, letter.reason) == (3, b"no such user")
    assert bench.number(dead, b"ttl") == 1000
    assert bench.info("stats")["total_jobs_dead"] == "1"


def test_a_job_that_nobody_acknowledges_in_time_is_delivered_as_often_as_allowed(
    bench: Bench,
) -> None:
    set_policy(bench, attempts=3, dead=b"dead")
    id = bench.add("q", "body", "RETRY", 10)
    for _ in range(3):
        assert bench.get() == id
        assert bench.number_queued("dead") == 0
        bench.advance(12)
    assert bench.get() is None
    assert bench.number_queued("dead") == 1


def test_deliveries_from_before_there_was_a_policy_do_not_count(bench: Bench) -> None:
    id = bench.add()
    for _ in range(5):
        assert bench.get() == id
        bench("NACK", id)
    set_policy(bench, attempts=1, dead=b"dead")
    assert bench.get() == id
    bench("NACK", id)
    assert bench.number_queued("dead") == 1


def test_without_a_number_of_attempts_jobs_come_for_ever(bench: Bench) -> None:
    set_policy(bench, dead=b"dead")
    id = bench.add()
    for _ in range(20):
        assert bench.get() == id
        assert bench("NACK", id) == 1


@pytest.mark.parametrize("name", ["q", "*"])
def test_without_a_queue_for_them_dead_letters_go_to_one_named_after_that_of_the_job(
    bench: Bench, name: str
) -> None:
    bench("QSET", name, "ATTEMPTS", 2)
    id = bench.add()
    for _ in range(2):
        assert bench.get() == id
        bench("NACK", id)
    for _ in range(20):  # letters have no limit
        (letter,) = bench.get_all("q.dead")
        assert letter_of(bench, letter).first == id
        bench("NACK", letter)
    bench.send(bench.me, "REDRIVE", "q.dead")
    bench.advance(0.1)
    assert bench.number_queued("q") == 1


def test_a_job_that_expires_leaves_a_dead_letter_where_there_is_a_queue_for_it(
    bench: Bench,
) -> None:
    set_policy(bench, dead=b"dead")
    id = bench.add("q", "body", "TTL", 5)
    other = bench.add("other", "body", "TTL", 5)
    bench.advance(8)
    assert not bench.held(id)
    assert not bench.held(other)
    (dead,) = bench.get_all("dead")
    letter = letter_of(bench, dead)
    assert (letter.first, letter.why, letter.attempts) == (id, BY_EXPIRY, 0)
    assert bench.info("stats")["total_jobs_expired"] == "2"


def test_what_was_delivered_at_most_once_is_done_with(bench: Bench) -> None:
    set_policy(bench, attempts=1, dead=b"dead")
    taken = bench.add("q", "body", "RETRY", 0, "TTL", 5)
    assert bench.get() == taken
    waiting = bench.add("q", "body", "RETRY", 0, "TTL", 5)
    bench.advance(8)
    (dead,) = bench.get_all("dead")
    assert letter_of(bench, dead).first == waiting


def test_a_worker_gives_a_job_up(bench: Bench) -> None:
    set_policy(bench, dead=b"dead")
    id = bench.add()
    assert bench.get() == id
    assert bench("NACK", id, "REASON", "malformed", "DEAD") == 1
    (dead,) = bench.get_all("dead")
    letter = letter_of(bench, dead)
    assert (letter.why, letter.reason) == (BY_WORKER, b"malformed")


def test_a_job_cannot_be_given_up_where_dead_letters_have_no_queue(bench: Bench) -> None:
    id = bench.add()
    bench.get()
    assert bench.error("NACK", id, "DEAD").startswith("NODEAD ")
    assert bench.held(id)


def test_names_that_fit_into_no_packet_have_no_dead_letters(bench: Bench) -> None:
    bench("QSET", "*", "DEAD", "dead", "ATTEMPTS", 1)
    longest = "q" * bus.MAX_NAME_IN_FIELDS
    for name, reply in ((longest, 1), (longest + "q", None)):
        id = bench.add(name)
        bench("GETJOB", "FROM", name)
        if reply:
            assert bench("NACK", id, "DEAD") == reply
        else:
            assert bench.error("NACK", id, "DEAD").startswith("NODEAD ")
            assert bench("NACK", id) == 1  # as often as it wants
            assert bench.number_queued(name) == 1
    assert bench.number_queued("dead") == 1
    problem = bench.error("REDRIVE", "dead", "TO", longest)
    assert problem == f"ERR the names of the queues have more than {bus.MAX_NAME_IN_FIELDS} bytes"


def test_a_dead_letter_stays_where_it_is_handed_back(bench: Bench) -> None:
    set_policy(bench, name=b"*", attempts=1, dead=b"dead")
    id = bench.add()
    bench.get()
    bench("NACK", id)
    dead = bench.get("dead")
    assert dead is not None
    for _ in range(3):
        assert bench("NACK", dead) == 1
        assert bench.get("dead") == dead


def test_letters_of_letters_name_the_first_job(bench: Bench) -> None:
    set_policy(bench, attempts=1, dead=b"dead")
    set_policy(bench, name=b"dead", attempts=1, dead=b"deader")
    id = bench.add()
    bench.get()
    bench("NACK", id)
    dead = bench.get("dead")
    assert dead is not None
    bench("NACK", dead)
    (deader,) = bench.get_all("deader")
    letter = letter_of(bench, deader)
    assert (letter.first, letter.queue) == (id, b"dead")


def test_a_redriven_job_starts_anew(bench: Bench) -> None:
    set_policy(bench, attempts=2, dead=b"dead")
    id = bench.add("q", "body")
    for _ in range(2):
        bench.get()
        bench("NACK", id, "REASON", "busy")
    assert redriven(bench, "dead") == 1
    assert bench("QLEN", "dead") == 0
    again = bench.get()
    assert again is not None
    assert again != id
    shown = bench.show(again)
    assert (shown[b"body"], shown[b"nacks"], shown[b"additional-deliveries"]) == (b"body", 0, 0)
    letter = letter_of(bench, again)
    assert (letter.first, letter.why, letter.reason) == (id, BY_REDRIVE, b"busy")
    bench("NACK", again)
    assert bench.get() == again
    bench("NACK", again)
    (dead,) = bench.get_all("dead")
    assert letter_of(bench, dead).first == id
    bench("ACKJOB", dead)
    assert bench.node.store.jobs.count == 0
    assert bench.node.memory.used == bench.counted_memory()


def test_what_is_sent_back_lives_as_long_as_what_is_added() -> None:
    assert (addjob.DEFAULT_TTL, addjob.DEFAULT_RETRY) == (job.DEFAULT_TTL, job.DEFAULT_RETRY)


def test_redrive_takes_what_it_is_told(bench: Bench) -> None:
    set_policy(bench, attempts=1, dead=b"dead")
    for number in range(250):
        bench("NACK", add_and_get(bench, str(number)))
    letters = bench.ids(bench("QPEEK", "dead", 250))
    assert len(letters) == 250
    assert redriven(bench, "dead", "MATCH", letters[7], letters[3], letters[7]) == 2
    assert redriven(bench, "dead", "COUNT", 120) == 120
    assert redriven(bench, "dead", "TO", "elsewhere", "COUNT", 5) == 5
    assert redriven(bench, "dead", "TO", "elsewhere") == 123
    assert bench("QLEN", "q") == 122
    assert bench("QLEN", "elsewhere") == 128
    assert redriven(bench, "dead") == 0
    assert redriven(bench, "no such queue") == 0


def test_jobs_that_came_from_nowhere_go_only_where_they_are_sent(bench: Bench) -> None:
    bench.add("dead")
    assert redriven(bench, "dead") == 0
    assert redriven(bench, "dead", "TO", "q") == 1
    assert bench("QLEN", "q") == 1


def test_a_queue_that_takes_no_jobs_gets_none_back(bench: Bench) -> None:
    set_policy(bench, attempts=1, dead=b"dead")
    bench("NACK", add_and_get(bench, "body"))
    bench("PAUSE", "q", "in")
    assert redriven(bench, "dead") == 0
    bench("PAUSE", "q", "none")
    assert redriven(bench, "dead") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("TO",),
        ("TO", ""),
        ("TO", "dead"),
        ("COUNT",),
        ("COUNT", "0"),
        ("COUNT", "-1"),
        ("COUNT", "x"),
        ("COUNT", "9" * 30),
        ("COUNT", "1", "COUNT", "1"),
        ("MATCH",),
        ("MATCH", "x"),
        ("MATCH", "D-00000000-000000000000000000000000-05a1", "COUNT", "1"),
        ("x",),
        ("x", "1"),
    ],
)
def test_wrong_options_of_redrive_are_refused(bench: Bench, words: tuple[str, ...]) -> None:
    bench.error("REDRIVE", "dead", *words)


@pytest.mark.parametrize(
    "words",
    [
        ("DELAY",),
        ("DELAY", "x"),
        ("DELAY", "-1"),
        ("DELAY", "1e3"),
        ("DELAY", "9" * 30),
        ("DELAY", "9999999999"),
        ("DELAY", "1", "DELAY", "1"),
        ("REASON",),
        ("REASON", "x" * 4097),
        ("REASON", "a", "REASON", "b"),
        ("DEAD", "DEAD"),
        ("DEAD", "DELAY", "1"),
        ("DEAD", "x"),
        ("x",),
    ],
)
def test_wrong_options_of_nack_are_refused(bench: Bench, words: tuple[str, ...]) -> None:
    set_policy(bench, dead=b"dead")
    id = add_and_get(bench, "body")
    bench.error("NACK", id, *words)
    assert bench.node.store.jobs.get(id).state == ACTIVE
    bench.error("NACK", *words)


def test_what_a_file_has_of_a_job_that_died_is_its_letter(bench: Bench, tmp_path: Path) -> None:
    set_policy(bench, attempts=1, dead=b"dead")
    bench.node.journaling = True
    id = add_and_get(bench, "body")
    bench("NACK", id, "REASON", "why")
    again = loaded_again(bench, tmp_path)
    assert not again.held(id)
    assert again.node.store.jobs.count == 1
    again.advance(400)
    (dead,) = again.get_all("dead")
    assert letter_of(again, dead).reason == b"why"


@pytest.mark.parametrize("holders", [1, 2])
def test_a_job_that_expires_while_its_node_is_down_leaves_a_letter(
    bench: Bench, tmp_path: Path, holders: int
) -> None:
    bench.node.journaling = True
    id = bench.add("q", "body", "TTL", 100, "RETRY", 20)
    done = bench.add("q", "done", "TTL", 100, "RETRY", 20)
    bench("ACKJOB", done)
    other = bench.add("other", "body", "TTL", 100)
    if holders == 2:
        bench.node.replicas.add(bench.node.store.jobs.get(id), b"f" * 40)
        bench.node.aof_codec.note(bench.node.store.jobs.get(id))
        bench.node.journal.pop(0)
    path = tmp_path / "aof"
    path.write_bytes(b"".join(bench.node.journal))
    again = Bench()
    assert again.node.id == bench.node.id
    again.now = again.node.now = bench.now + 500_000
    set_policy(again, dead=b"dead")
    for _ in Loader(str(path), again.node, False).steps():
        pass
    assert not again.held(other)
    again.advance(2)
    assert not again.held(id)
    assert again.number_queued("dead") == (holders == 1)
    again.advance(400)  # another holder would have queued it by now
    (dead,) = again.get_all("dead")
    assert letter_of(again, dead).first == id


def add_and_get(bench: Bench, body: str) -> bytes:
    """Return a job that a worker has."""
    id = bench.add("q", body)
    assert bench.get() == id
    return id


def redriven_soon(bench: Bench, *words: str | bytes | int) -> object:
    """Return the reply to REDRIVE, which has to come within a few turns."""
    bench.send(bench.me, "REDRIVE", *words)
    for _ in range(3):
        bench.node.tick(bench.now)
    (reply,) = bench.replies(bench.me)
    return reply


def test_redrive_of_very_many_ids_ends_though_none_can_go(bench: Bench) -> None:
    id = bench.add("q", "x")  # it has no origin
    assert redriven_soon(bench, "q", "MATCH", *[id] * MAX_MATCHES) == 0


def redriven(bench: Bench, *words: str | bytes | int) -> object:
    """Return the reply to REDRIVE."""
    bench.send(bench.me, "REDRIVE", *words)
    bench.advance(0.1)
    (reply,) = bench.replies(bench.me)
    return reply
