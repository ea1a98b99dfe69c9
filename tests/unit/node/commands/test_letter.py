"""ADDJOB LETTER: a job that is a dead letter from the start."""

from disque_trio.node.commands.add_options import MAX_REASON
from tests.support.node_bench import Bench

FIRST = "D-dcb833cf-8YL1NT17e9wsA/09NqxscQI8-05a1"
LETTER = ("LETTER", "mail", "refused", 3, FIRST, "no such address")


def test_a_letter_shows_its_past_and_is_sent_back(bench: Bench) -> None:
    id = bench.add("mail.dead", "hello", *LETTER)
    shown = bench.show(id)
    assert (shown[b"dead-from"], shown[b"dead-why"]) == (b"mail", b"refused")
    assert (shown[b"dead-attempts"], shown[b"first-id"]) == (3, FIRST.encode())
    assert shown[b"dead-reason"] == b"no such address"
    counts, jobs = bench("JSCAN", "FIRST", 5, "STATE", "dead")  # type: ignore[misc]
    assert (dict(zip(counts[::2], counts[1::2], strict=True))[b"dead"], jobs) == (1, [id])
    bench.send(bench.me, "REDRIVE", "mail.dead")
    bench.advance(1)
    assert bench.replies(bench.me) == [1]
    assert bench("QLEN", "mail") == 1
    assert bench("QLEN", "mail.dead") == 0


def test_what_is_no_letter_is_refused(bench: Bench) -> None:
    def error(*words: str | int) -> str:
        return bench.error("ADDJOB", "q", "x", 0, *words)

    assert error(*LETTER[:5]).startswith("ERR syntax")
    assert "attempts, expired, refused" in error("LETTER", "mail", "redriven", 3, FIRST, "")
    assert "attempts, expired, refused" in error("LETTER", "mail", "", 3, FIRST, "")
    assert "must be a number" in error("LETTER", "mail", "refused", "x", FIRST, "")
    assert error("LETTER", "mail", "refused", 3, "D-1", "").startswith("BADID")
    assert "1 to" in error("LETTER", "", "refused", 3, FIRST, "")
    assert "1 to" in error("LETTER", "mail", "refused", 3, FIRST, "x" * (MAX_REASON + 1))
    assert "given twice" in error(*LETTER, *LETTER)
    assert "not for schedules" in bench.error("CRON", "SET", "s", "@daily", "q", "x", *LETTER)


def test_a_user_needs_the_right_to_add_to_the_queue_that_it_came_from(bench: Bench) -> None:
    bench("ACL", "SETUSER", "u", "on", "nopass", "+@all", "resetkeys", "%W~mail.dead")
    user = bench.client()
    bench.send(user, "AUTH", "u", "x")
    bench.send(user, "ADDJOB", "mail.dead", "x", 0, *LETTER)
    assert "NOPERM" in repr(bench.replies(user)[-1])
    bench("ACL", "SETUSER", "u", "%W~mail")
    bench.send(user, "ADDJOB", "mail.dead", "x", 0, *LETTER)
    assert bench.replies(user)[-1].startswith(b"D-")  # type: ignore[union-attr]
