"""QSET, QGET, QDEL, and their effect on ADDJOB."""

from typing import Any

import pytest

from disque_trio.node.core.shared import sharing
from disque_trio.node.core.shared.policies import Policy
from disque_trio.node.core.shared.versions import MAX_CLOCK, Entry
from tests.support.node_bench import Bench


def get(bench: Bench, *args: str) -> dict[bytes, Any]:
    return bench.fields("QGET", *args)


def test_options_that_are_given_are_set_and_the_others_stay(bench: Bench) -> None:
    assert bench("QSET", "q", "attempts", 3, "DEAD", "lost", "BACKOFF", "0.5", 60) == b"OK"
    assert bench("QSET", "q", "TTL", 100, "RETRY", 5, "REPLICATE", 2, "DEADTTL", 7) == b"OK"
    assert bench("QSET", "q", "ATTEMPTS", 4) == b"OK"
    assert bench("QGET", "q") == [
        b"name", b"q", b"attempts", 4, b"dead", b"lost", b"backoff", [b"0.5", b"60"],
        b"deadttl", 7, b"ttl", 100, b"retry", 5, b"replicate", 2,
    ]  # fmt: skip


def test_zero_or_nothing_unsets_an_option(bench: Bench) -> None:
    bench("QSET", "q", "ATTEMPTS", 3, "DEAD", "x", "BACKOFF", 1, 2, "DEADTTL", 7, "TTL", 5)
    bench("QSET", "q", "RETRY", 3, "REPLICATE", 1)
    bench("QSET", "q", "ATTEMPTS", 0, "DEAD", "", "BACKOFF", 0, 0, "DEADTTL", 0, "TTL", 0)
    bench("QSET", "q", "RETRY", "", "REPLICATE", 0)
    assert bench("QGET", "q") == [b"name", b"q"]


@pytest.mark.parametrize(
    ("word", "answer"),
    [("50", b"50/s"), ("50/s", b"50/s"), ("7/M", b"7/m"), ("4294967295/h", b"4294967295/h")],
)
def test_a_rate_has_a_time(bench: Bench, word: str, answer: bytes) -> None:
    assert bench("QSET", "q", "RATE", word, "ACTIVE", 5) == b"OK"
    assert bench("QGET", "q") == [b"name", b"q", b"rate", answer, b"active", 5]


def test_without_a_rate_there_is_no_burst(bench: Bench) -> None:
    assert bench("QSET", "q", "BURST", 5, "RATE", "50/s") == b"OK"
    assert get(bench, "q")[b"burst"] == 5
    assert bench("QSET", "q", "RATE", 0, "ACTIVE", "") == b"OK"
    assert bench("QGET", "q") == [b"name", b"q"]
    assert "BURST needs RATE" in bench.error("QSET", "q", "BURST", 5)


@pytest.mark.parametrize("word", ["-1", "x", "50/", "50/d", "/", "5/s/s", "1.5/s", "4294967296"])
def test_an_invalid_rate_is_refused(bench: Bench, word: str) -> None:
    assert "RATE must be" in bench.error("QSET", "q", "RATE", word)
    assert bench("QGET", "q") is None


def test_groups_are_fair_or_fifo(bench: Bench) -> None:
    assert bench("QSET", "q", "GROUPS", "FIFO") == b"OK"
    assert get(bench, "q")[b"groups"] == b"fifo"
    assert bench("QSET", "q", "GROUPS", "fair", "TTL", 9) == b"OK"
    assert get(bench, "q")[b"groups"] == b"fair"
    for word in ("lifo", "1", "fairfifo"):
        assert "GROUPS must be" in bench.error("QSET", "q", "GROUPS", word)
    assert bench("QSET", "q", "GROUPS", 0, "TTL", 0) == b"OK"
    assert bench("QGET", "q") == [b"name", b"q"]


def test_a_policy_of_its_own_without_options_exempts_a_queue_from_a_pattern(bench: Bench) -> None:
    bench("QSET", "*", "TTL", 100)
    bench("QSET", "q", "TTL", 0)
    id = bench.add("q")
    assert bench.show(id)[b"ttl"] == 86_400
    assert bench("QDEL", "q") == 1
    id = bench.add("q")
    assert bench.show(id)[b"ttl"] == 100


def test_qget_says_under_which_name_a_policy_was_found(bench: Bench) -> None:
    bench("QSET", "*", "TTL", 1)
    bench("QSET", "mail.*", "TTL", 2)
    assert get(bench, "mail.a")[b"name"] == b"mail.*"
    assert get(bench, "other")[b"name"] == b"*"
    assert bench("QGET") == [[b"name", b"*", b"ttl", 1], [b"name", b"mail.*", b"ttl", 2]]


def test_qget_of_a_queue_without_a_policy_is_null(bench: Bench) -> None:
    assert bench("QGET", "q") is None
    assert bench("QGET") == []
    bench("QSET", "other", "TTL", 1)
    assert bench("QGET", "q") is None


def test_qget_is_a_map_for_clients_of_resp3(bench: Bench) -> None:
    bench("QSET", "q", "TTL", 1)
    bench.send(bench.me, "HELLO", 3)
    bench.raw(bench.me)
    bench.send(bench.me, "QGET", "q")
    assert bench.raw(bench.me) == b"%2\r\n$4\r\nname\r\n$1\r\nq\r\n$3\r\nttl\r\n:1\r\n"


def test_qdel_deletes_just_that_name(bench: Bench) -> None:
    bench("QSET", "mail.*", "TTL", 1)
    assert bench("QDEL", "mail.a") == 0
    assert bench("QDEL", "mail.*") == 1
    assert bench("QDEL", "mail.*") == 0
    assert bench("QGET", "mail.a") is None


def test_info_counts_policies(bench: Bench) -> None:
    bench("QSET", "q", "TTL", 1)
    assert "policies:1\r\n" in bench.text("INFO", "queues")


COUNT = "must be a number from 0 to 4294967295"
BACKOFF = "ERR BACKOFF must be two numbers of seconds from 0 to 4294967295"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("ATTEMPTS", "ERR wrong number of arguments for 'qset' command"),
        ("TTL 1 ATTEMPTS", "ERR syntax error"),
        ("ATTEMPTS 1 2", "ERR syntax error"),
        ("COLOUR red", "ERR syntax error"),
        ("BACKOFF 1", "ERR syntax error"),
        ("ATTEMPTS many", f"ERR ATTEMPTS {COUNT}"),
        ("ATTEMPTS -1", f"ERR ATTEMPTS {COUNT}"),
        ("ATTEMPTS 1.5", f"ERR ATTEMPTS {COUNT}"),
        ("ATTEMPTS 4294967296", f"ERR ATTEMPTS {COUNT}"),
        ("TTL 99999999999999999999999999", f"ERR TTL {COUNT}"),
        ("DEADTTL -5", f"ERR DEADTTL {COUNT}"),
        ("RETRY -1", f"ERR RETRY {COUNT}"),
        ("REPLICATE 65536", "ERR REPLICATE must be a number from 0 to 65535"),
        ("TTL 1 ttl 2", "ERR TTL is given twice"),
        ("BACKOFF 2 1", "ERR BACKOFF: min must not be greater than max"),
        ("BACKOFF 0 1", "ERR BACKOFF: min must be greater than 0"),
        ("BACKOFF -1 1", BACKOFF),
        ("BACKOFF 1 x", BACKOFF),
        ("BACKOFF 1 nan", BACKOFF),
        ("BACKOFF 1 1e3", BACKOFF),
        ("BACKOFF 1 inf", BACKOFF),
        ("BACKOFF 1 4294967296", BACKOFF),
        ("BACKOFF 1 4294967295.001", BACKOFF),
        ("BACKOFF 1 ٣", BACKOFF),
        ("DEAD q", "ERR DEAD must be another queue"),
        ("DELAY soon", "ERR DELAY must be a number of seconds from 0 to 4294967295"),
        ("TTL 5 DELAY 5", "ERR DELAY must be less than TTL"),
        ("RETRY 0", "ERR RETRY 0 (at-most-once delivery) needs REPLICATE 1"),
        ("RETRY 0 REPLICATE 2", "ERR RETRY 0 (at-most-once delivery) needs REPLICATE 1"),
        (
            "RETRY 0 REPLICATE 1 ATTEMPTS 2",
            "ERR RETRY 0 (at-most-once delivery) cannot be combined with ATTEMPTS",
        ),
    ],
)
def test_wrong_options_are_refused_and_change_nothing(bench: Bench, words: str, error: str) -> None:
    assert bench.error("QSET", "q", *words.split()) == error
    assert bench("QGET", "q") is None


def test_what_an_option_makes_wrong_with_those_that_stay_is_refused(bench: Bench) -> None:
    bench("QSET", "q", "RETRY", 0, "REPLICATE", 1)
    assert "needs REPLICATE 1" in bench.error("QSET", "q", "REPLICATE", 3)
    assert get(bench, "q")[b"replicate"] == 1


def test_names_have_limits(bench: Bench) -> None:
    for name in ("", "x" * 4_097, "x" * 10_000_000):
        assert "1 to 4096 bytes" in bench.error("QSET", name, "TTL", 1)
    assert bench.error("QSET", "q", "DEAD", "x" * 4_097) == "ERR DEAD must have 4096 bytes at most"
    assert bench("QSET", "x" * 4_096, "TTL", 1) == b"OK"
    assert bench("QDEL", "x" * 10_000_000) == 0
    assert bench("QGET", "x" * 10_000_000) is None
    assert "wrong number" in bench.error("QGET", "a", "b")


def test_so_many_policies_and_no_more(bench: Bench) -> None:
    for number in range(10_000):
        assert bench("QSET", f"q{number}", "TTL", 1) == b"OK"
    assert bench.error("QSET", "more", "TTL", 1).startswith("ERR there are 10000 policies already")
    assert bench("QSET", "q1", "TTL", 2) == b"OK"
    assert bench("QDEL", "q1") == 1
    assert bench("QSET", "more", "TTL", 1) == b"OK"


def test_so_many_patterns_and_no_more(bench: Bench) -> None:
    for number in range(1_000):
        assert bench("QSET", f"q{number}*", "TTL", 1) == b"OK"
    assert "1000 policies of patterns" in bench.error("QSET", "more*", "TTL", 1)
    assert bench("QSET", "more", "TTL", 1) == b"OK"


def test_so_many_bytes_and_no_more(bench: Bench) -> None:
    for number in range(1_100):
        reply = bench("QSET", f"{number:04096}", "TTL", 1)
    assert "more than 4194304 bytes" in str(reply)
    assert bench("QSET", "q", "TTL", 1) == b"OK"


def test_what_cannot_be_written_to_the_disk_is_refused_and_changes_nothing(bench: Bench) -> None:
    bench("QSET", "q", "TTL", 1)
    before = bench("QGET"), bench.node.policies.digest
    bench.node.policy_sharing.keep = lambda names: "No space left on device"
    error = "ERR the policies cannot be written to the disk: No space left on device"
    assert bench.error("QSET", "q", "TTL", 2) == error
    assert bench.error("QSET", "new", "TTL", 2) == error
    assert bench.error("QDEL", "q") == error
    assert bench("QDEL", "new") == 0
    assert (bench("QGET"), bench.node.policies.digest) == before


def test_changes_of_several_clients_in_one_turn_are_written_at_once(bench: Bench) -> None:
    writes: list[int] = []
    bench.node.policy_sharing.keep = lambda names: writes.append(1)  # type: ignore[func-returns-value]
    others = [bench.client() for _ in range(3)]
    for ttl, client in enumerate(others, 1):
        bench.send(client, "QSET", "q", "TTL", ttl)
        assert client.out == []  # not until it is written
    assert [bench.replies(client) for client in others] == [[b"OK"]] * 3
    assert writes == [1]
    assert get(bench, "q")[b"ttl"] == 3


def test_all_changes_of_a_turn_are_taken_back_when_they_cannot_be_written(bench: Bench) -> None:
    bench("QSET", "q", "TTL", 1)
    bench.node.policy_sharing.keep = lambda names: "Input/output error"
    one, two = bench.client(), bench.client()
    bench.send(one, "QSET", "q", "TTL", 2)
    bench.send(two, "QDEL", "q")
    bench.send(bench.me, "QSET", "new", "TTL", 3)
    bench.disconnect(two)
    assert "Input/output error" in str(bench.replies(one))
    assert "Input/output error" in str(bench.replies(bench.me))
    assert bench("QGET") == [[b"name", b"q", b"ttl", 1]]


def test_a_change_that_cannot_be_written_leaves_what_another_node_said_meanwhile(
    bench: Bench,
) -> None:
    bench.node.policy_sharing.keep = lambda names: "Input/output error"
    bench.send(bench.me, "QSET", "q", "TTL", 2)
    newer = Entry(b"q", Policy(b"q"), 99, b"f" * 40, 0)
    bench.node.policy_sharing.on_packet(b"f" * 40, [(1, newer.fields())])
    assert "Input/output error" in str(bench.replies(bench.me))
    assert bench("QGET") == [[b"name", b"q"]]


def test_a_change_without_a_reply_is_made_all_the_same(bench: Bench) -> None:
    bench("PING")
    bench.send(bench.me, "CLIENT", "REPLY", "SKIP")
    bench.send(bench.me, "QSET", "q", "TTL", 2)
    assert bench.replies(bench.me) == []
    assert bench("QGET", "q") == [b"name", b"q", b"ttl", 2]


def test_options_that_need_extensions_are_refused_where_a_node_does_not_know_them(
    bench: Bench,
) -> None:
    bench.node.peers.extended = False
    for words in (["ATTEMPTS", 3], ["DEAD", "x"], ["BACKOFF", 1, 2], ["DEADTTL", 3]):
        assert bench.error("QSET", "q", *words).startswith("NOEXT ")
    assert bench("QSET", "q", "TTL", 1, "ATTEMPTS", 0) == b"OK"


def test_the_logical_clock_does_not_overflow(bench: Bench) -> None:
    bench.node.policies.clock = MAX_CLOCK
    assert "clock" in bench.error("QSET", "q", "TTL", 1)
    assert bench("QGET") == []


def test_flushing_jobs_keeps_policies_and_a_hard_reset_does_not(bench: Bench) -> None:
    bench("QSET", "q", "TTL", 1)
    bench("DEBUG", "FLUSHALL")
    bench("CLUSTER", "RESET", "SOFT")
    assert bench.node.policies.count == 1
    bench("CLUSTER", "RESET", "HARD")
    assert bench("QGET") == []
    assert sharing.COMPARE_EVERY > 0


# ---- ADDJOB ----------------------------------------------------------------------------------


def test_addjob_takes_from_the_policy_what_it_does_not_say(bench: Bench) -> None:
    bench("QSET", "q", "TTL", 1_000, "RETRY", 7, "REPLICATE", 1)
    shown = bench.show(bench.add("q"))
    assert (shown[b"ttl"], shown[b"retry"], shown[b"repl"]) == (1_000, 7, 1)
    shown = bench.show(bench.add("q", "body", "TTL", 50, "RETRY", 3, "DELAY", 10, "ASYNC"))
    assert (shown[b"ttl"], shown[b"retry"], shown[b"delay"]) == (50, 3, 10)
    shown = bench.show(bench.add("other"))
    assert (shown[b"ttl"], shown[b"retry"]) == (86_400, 300)


def test_a_retry_that_nobody_gives_follows_the_ttl_of_the_policy(bench: Bench) -> None:
    bench("QSET", "q", "TTL", 100)
    assert bench.show(bench.add("q"))[b"retry"] == 10


def test_at_most_once_by_policy(bench: Bench) -> None:
    bench("QSET", "q", "RETRY", 0, "REPLICATE", 1)
    assert bench.show(bench.add("q"))[b"retry"] == 0
    assert bench.error("ADDJOB", "q", "body", 0, "REPLICATE", 3) == (
        "ERR RETRY 0 (at-most-once delivery) needs REPLICATE 1, and the policy of q has RETRY 0"
    )


def test_options_of_addjob_that_do_not_go_with_the_policy_are_refused(bench: Bench) -> None:
    bench("QSET", "*", "REPLICATE", 3, "TTL", 100)
    assert bench.error("ADDJOB", "q", "body", 0, "RETRY", 0) == (
        "ERR RETRY 0 (at-most-once delivery) needs REPLICATE 1, and the policy of * has REPLICATE 3"
    )
    for delay in (100, 101, 2**62):
        assert bench.error("ADDJOB", "q", "body", 0, "REPLICATE", 1, "DELAY", delay) == (
            "ERR The specified DELAY is greater than TTL, which is 100 by the policy of *. "
            "Job refused since would never be delivered"
        )
    own = ["RETRY", 0, "REPLICATE", 2]
    assert "please explicitly set" in bench.error("ADDJOB", "q", "body", 0, *own)
    assert bench.error("ADDJOB", "q", "body", 0).startswith("NOREPL ")


def test_an_addjob_does_not_change_what_the_next_one_gets(bench: Bench) -> None:
    bench("QSET", "q", "TTL", 1_000)
    bench.add("q")
    assert bench.show(bench.add("other"))[b"ttl"] == 86_400


def test_the_name_in_an_error_is_cut(bench: Bench) -> None:
    bench("QSET", "x" * 4_000 + "*", "TTL", 1)
    error = bench.error("ADDJOB", "x" * 4_001, "body", 0, "DELAY", 5)
    assert "x" * 100 in error
    assert len(error) < 300


def test_jobs_wait_as_long_as_the_policy_says(bench: Bench) -> None:
    assert bench("QSET", "q", "DELAY", "2.5") == b"OK"
    assert bench("QGET", "q") == [b"name", b"q", b"delay", b"2.5"]
    id = bench.add("q")
    assert bench.show(id)[b"ttl"] == 86_403
    bench.advance(2.4)
    assert bench.number_queued() == 0
    bench.advance(0.2)
    assert bench.get() == id
    bench("QSET", "q", "DELAY", 0)
    bench.add("q")
    assert bench.number_queued() == 1


def test_who_says_when_a_job_is_queued_knows_better_than_its_policy(bench: Bench) -> None:
    bench("QSET", "*", "DELAY", 60)
    bench.add("q", "now", "DELAY", 0)
    bench.add("q", "now", "AT", bench.now)
    bench.add("q", "soon", "DELAY", 1)
    assert bench.number_queued() == 2
    bench.advance(1.1)
    assert bench.number_queued() == 3


def test_a_job_that_would_end_before_its_policy_queues_it_is_refused(bench: Bench) -> None:
    bench("QSET", "q", "DELAY", 60)
    assert bench.error("ADDJOB", "q", "body", 0, "TTL", 60) == (
        "ERR TTL must be greater than DELAY, which the policy of q sets to 60"
    )
    assert bench("ADDJOB", "q", "body", 0, "TTL", 61)
    assert bench("ADDJOB", "q", "body", 0, "TTL", 60, "DELAY", 0)


def test_a_job_of_a_topic_waits_as_the_policy_of_its_queue_says(bench: Bench) -> None:
    bench("BIND", "news", "now")
    bench("BIND", "news", "later")
    bench("QSET", "later", "DELAY", 60)
    assert len(bench("ADDJOB", "@news", "body", 0)) == 2
    assert (bench.number_queued("now"), bench.number_queued("later")) == (1, 0)
    bench.advance(61)
    assert bench.number_queued("later") == 1
