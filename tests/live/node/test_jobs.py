"""The replies of the job commands over a real socket, byte for byte where clients need it."""

import re

import pytest

from tests.support.harness import LiveNode, Wire
from tests.support.live_helpers import ANY_ID, JOB_ID, add_job, exchange, packed, pairs


def test_addjob_answers_the_id_as_a_simple_string(shared_node: LiveNode) -> None:
    reply = exchange(shared_node, packed("ADDJOB", "q", "body", 0))
    assert re.fullmatch(rb"\+" + JOB_ID + rb"\r\n", reply)


@pytest.mark.parametrize(
    ("options", "ending"),
    [
        ((), "05a1"),
        (("RETRY", 0), "05a0"),
        (("TTL", 60), "0001"),
        (("TTL", 60, "RETRY", 0), "0000"),
        (("TTL", 1), "0001"),
        (("TTL", 2**40), "ffff"),
    ],
)
def test_the_id_ends_with_minutes_to_live_and_the_kind_of_delivery(
    talk: Wire, options: tuple[str | int, ...], ending: str
) -> None:
    assert add_job(talk, "q", "b", *options).endswith("-" + ending)


@pytest.mark.pure
def test_getjob_answers_queue_id_and_body_of_each_job(shared_node: LiveNode) -> None:
    wire = shared_node.wire()
    first, second = add_job(wire, "q", b"one"), add_job(wire, "q", b"\0\r\n\xff")
    reply = exchange(shared_node, packed("GETJOB", "COUNT", 5, "FROM", "q"))
    expected = (
        "*2\r\n*3\r\n$1\r\nq\r\n$40\r\n%s\r\n$3\r\none\r\n*3\r\n$1\r\nq\r\n$40\r\n%s\r\n$4\r\n"
    )
    assert reply == (expected % (first, second)).encode() + b"\0\r\n\xff\r\n"


def test_getjob_withcounters_adds_nacks_and_deliveries(talk: Wire) -> None:
    id = add_job(talk)
    talk("GETJOB", "FROM", "q")
    assert talk("NACK", id) == 1
    assert talk("GETJOB", "NOHANG", "WITHCOUNTERS", "FROM", "q") == [
        [b"q", id.encode(), b"body", b"nacks", 1, b"additional-deliveries", 0]
    ]


def test_getjob_over_several_queues_takes_one_of_each_in_turn(talk: Wire) -> None:
    for queue in ("a", "b"):
        for number in range(3):
            add_job(talk, queue, f"{queue}{number}")
    jobs = talk("GETJOB", "COUNT", 5, "FROM", "a", "b")
    assert isinstance(jobs, list)
    assert [job[2] for job in jobs] == [b"a0", b"b0", b"a1", b"b1", b"a2"]


def test_nothing_to_get_is_a_null_array(shared_node: LiveNode) -> None:
    assert exchange(shared_node, packed("GETJOB", "NOHANG", "FROM", "q")) == b"*-1\r\n"
    wire = shared_node.wire()
    assert wire("GETJOB", "TIMEOUT", 1, "FROM", "q") is None
    assert wire("QLEN", "q") == 0


def test_words_after_from_are_queue_names_whatever_they_say(talk: Wire) -> None:
    add_job(talk, "COUNT", "x")
    job = talk("GETJOB", "FROM", "NOHANG", "COUNT")
    assert isinstance(job, list)
    assert job[0][0] == b"COUNT"


def test_an_acknowledged_job_is_gone(talk: Wire) -> None:
    id = add_job(talk)
    assert talk("ACKJOB", id, id) == 1
    assert talk("ACKJOB", id) == 0
    assert talk("SHOW", id) is None
    assert talk("GETJOB", "NOHANG", "FROM", "q") is None


@pytest.mark.parametrize("command", ["ACKJOB", "FASTACK", "DELJOB"])
def test_commands_that_end_jobs_count_known_jobs(talk: Wire, command: str) -> None:
    ids = [add_job(talk) for _ in range(3)]
    assert talk(command, *ids, ANY_ID) == 3
    assert talk(command, *ids) == 0
    assert talk("QLEN", "q") == 0


def test_enqueue_and_dequeue_move_a_job_and_count_only_moves(talk: Wire) -> None:
    id = add_job(talk)
    assert talk("ENQUEUE", id) == 0
    assert talk("DEQUEUE", id, id) == 1
    assert talk("QLEN", "q") == 0
    assert talk("ENQUEUE", id) == 1
    assert talk("QLEN", "q") == 1


def test_a_job_put_back_comes_before_younger_ones(talk: Wire) -> None:
    first = add_job(talk, "q", "first")
    add_job(talk, "q", "second")
    talk("GETJOB", "FROM", "q")
    talk("NACK", first)
    assert talk("GETJOB", "FROM", "q") == [[b"q", first.encode(), b"first"]]


@pytest.mark.pure
def test_an_at_most_once_job_is_never_delivered_again(talk: Wire) -> None:
    id = add_job(talk, "q", "once", "RETRY", 0)
    assert talk("GETJOB", "FROM", "q")
    assert talk("NACK", id) == 0
    assert talk("ENQUEUE", id) == 0
    assert talk("GETJOB", "NOHANG", "FROM", "q") is None


def test_an_unacknowledged_job_is_redelivered_after_its_retry_time(talk: Wire) -> None:
    id = add_job(talk, "q", "again", "RETRY", 1)
    talk("GETJOB", "FROM", "q")
    assert talk("GETJOB", "WITHCOUNTERS", "FROM", "q") == [
        [b"q", id.encode(), b"again", b"nacks", 0, b"additional-deliveries", 1]
    ]


def test_a_delayed_job_is_delivered_when_its_delay_is_over(talk: Wire) -> None:
    id = add_job(talk, "q", "later", "DELAY", 3)
    assert talk("QLEN", "q") == 0
    assert talk("GETJOB", "FROM", "q") == [[b"q", id.encode(), b"later"]]


def test_working_answers_the_retry_time(talk: Wire) -> None:
    id = add_job(talk, "q", "b", "RETRY", 7)
    assert talk("WORKING", id) == 7
    assert talk.error("WORKING", ANY_ID) == "NOJOB Job not known in the context of this node."
    talk("ACKJOB", id)
    assert talk.error("WORKING", id).startswith("NOJOB ")


def test_working_is_refused_in_the_second_half_of_the_time_to_live(talk: Wire) -> None:
    id = add_job(talk, "q", "b", "TTL", 6, "RETRY", 6)
    assert talk("GETJOB", "FROM", "q")
    while (reply := talk("WORKING", id)) == 6:
        talk("GETJOB", "TIMEOUT", 100, "FROM", "other")
    assert str(reply) == (
        "TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the "
        "next delivery."
    )


def test_show_gives_fifteen_fields_in_their_order(talk: Wire) -> None:
    id = add_job(talk, "q", "body", "DELAY", 100, "RETRY", 30, "TTL", 1000)
    fields = pairs(talk("SHOW", id))
    assert list(fields) == [
        "id", "queue", "state", "repl", "ttl", "ctime", "delay", "retry", "nacks",
        "additional-deliveries", "nodes-delivered", "nodes-confirmed", "next-requeue-within",
        "next-awake-within", "body",
    ]  # fmt: skip
    assert fields["id"] == id.encode()
    assert fields["state"] == b"active"
    assert fields["repl"] == 1
    assert 900 < int(str(fields["ttl"])) <= 1000  # the remaining time
    assert fields["delay"] == 100
    assert fields["retry"] == 30
    within = fields["next-requeue-within"]
    assert isinstance(within, int)
    assert 99_000 < within <= 100_000
    assert fields["nodes-delivered"] == [talk("CLUSTER", "MYID")]
    assert fields["body"] == b"body"


def test_show_of_a_queued_at_most_once_job_has_no_requeue_time(talk: Wire) -> None:
    fields = pairs(talk("SHOW", add_job(talk, "q", "b", "RETRY", 0)))
    assert fields["state"] == b"queued"
    assert fields["next-requeue-within"] is None


def test_show_of_an_unknown_job_is_a_null_bulk(shared_node: LiveNode) -> None:
    assert exchange(shared_node, packed("SHOW", ANY_ID)) == b"$-1\r\n"


def test_an_expired_job_is_gone(talk: Wire) -> None:
    id = add_job(talk, "q", "short", "TTL", 1)
    # Expiry has a resolution of a second and is checked a second later: wait on another queue.
    for _ in range(40):
        if talk("SHOW", id) is None:
            return
        talk("GETJOB", "TIMEOUT", 100, "FROM", "other")
    pytest.fail("the job outlived its time by far")


@pytest.mark.parametrize(
    ("request_line", "problem"),
    [
        ("ADDJOB q b x", "ERR timeout is not an integer or out of range"),
        ("ADDJOB q b -1", "ERR timeout is negative"),
        ("ADDJOB q b 0 REPLICATE 0", "ERR REPLICATE must be between 1 and 65535"),
        ("ADDJOB q b 0 REPLICATE 65536", "ERR REPLICATE must be between 1 and 65535"),
        ("ADDJOB q b 0 TTL 0", "ERR TTL must be a number > 0"),
        ("ADDJOB q b 0 RETRY -1", "ERR RETRY time must be a non negative number"),
        ("ADDJOB q b 0 DELAY x", "ERR DELAY time must be a non negative number"),
        ("ADDJOB q b 0 MAXLEN 0", "ERR MAXLEN must be a positive number"),
        ("ADDJOB q b 0 WHAT", "ERR syntax error"),
        ("ADDJOB q b 0 TTL", "ERR syntax error"),
        ("ADDJOB q b x TTL 0", "ERR TTL must be a number > 0"),
        (
            "ADDJOB q b 0 REPLICATE 2 RETRY 0",
            "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)",
        ),
        (
            "ADDJOB q b 0 DELAY 10 TTL 10",
            "ERR The specified DELAY is greater than TTL. Job refused since would never be "
            "delivered",
        ),
        (
            "ADDJOB q b 0 REPLICATE 2",
            "NOREPL Not enough reachable nodes: 0 of the 1 needed besides this one; "
            "the cluster has 1 node",
        ),
        ("ADDJOB q b", "ERR wrong number of arguments for 'addjob' command"),
        ("GETJOB FROM", "ERR syntax error"),
        ("GETJOB NOHANG q", "ERR syntax error"),
        ("GETJOB COUNT 0 FROM q", "ERR COUNT must be a number greater than zero"),
        ("GETJOB TIMEOUT -1 FROM q", "ERR timeout is negative"),
        ("GETJOB", "ERR wrong number of arguments for 'getjob' command"),
        ("ACKJOB nonsense", "BADID Invalid Job ID format."),
        ("FASTACK nonsense", "BADID Invalid Job ID format."),
        ("DELJOB nonsense", "BADID Invalid Job ID format."),
        ("NACK nonsense", "BADID Invalid Job ID format."),
        ("ENQUEUE nonsense", "BADID Invalid Job ID format."),
        ("DEQUEUE nonsense", "BADID Invalid Job ID format."),
        ("WORKING nonsense", "BADID Invalid Job ID format."),
        ("SHOW nonsense", "BADID Invalid Job ID format."),
        ("LOADJOB x", "ERR LOADJOB is a special command only processed from AOF"),
        ("QPEEK q x", "ERR value is not an integer or out of range"),
        ("PAUSE q", "ERR wrong number of arguments for 'pause' command"),
        ("PAUSE q in sideways", "ERR syntax error"),
        ("QSCAN nonsense", "ERR invalid cursor or option name"),
        ("QSCAN 0 0", "ERR syntax error"),
        ("JSCAN STATE asleep", "ERR Invalid job state name"),
        ("JSCAN REPLY some", "ERR Invalid REPLY type, try ID or ALL"),
        ("JSCAN -1", "ERR invalid cursor or option name"),
    ],
)
def test_a_malformed_command_gets_its_error_and_the_connection_goes_on(
    talk: Wire, request_line: str, problem: str
) -> None:
    assert talk.error(*request_line.split()) == problem
    assert talk("PING") == b"PONG"


def test_one_bad_id_among_good_ones_changes_nothing(talk: Wire) -> None:
    id = add_job(talk)
    for command in ("ACKJOB", "FASTACK", "DELJOB", "DEQUEUE"):
        assert talk.error(command, id, "nonsense") == "BADID Invalid Job ID format."
    assert talk("QLEN", "q") == 1


def test_commands_on_ids_without_an_id_answer_zero(talk: Wire) -> None:
    for command in ("ACKJOB", "FASTACK", "DELJOB", "ENQUEUE", "NACK", "DEQUEUE"):
        assert talk(command) == 0


def test_maxlen_refuses_jobs_beyond_the_length(talk: Wire) -> None:
    add_job(talk)
    assert talk.error("ADDJOB", "q", "b", 0, "MAXLEN", 1) == (
        "MAXLEN Queue is already longer than the specified MAXLEN count"
    )
    add_job(talk, "q", "b", "MAXLEN", 2)


def test_names_of_the_first_release_still_work(talk: Wire) -> None:
    id = add_job(talk)
    assert talk("GETJOBS", "FROM", "q") == [[b"q", id.encode(), b"body"]]
    assert talk("QUEUE", id) == 1
    assert talk("SCANQUEUES", "MAXIDLE", 100) == [b"0", [b"q"]]
    assert talk("SCANJOBS") == [b"0", [id.encode()]]
    assert talk("DELJOB", "BCAST", "FORCE", id) == 1
