"""The life of a job in words."""

import re
from typing import Any

import pytest

from disque_spark.audit import trace as tr
from disque_spark.story import followers, precedes, said, tell, waits
from disque_trio.eventlog import schema

A, B = "a" * 40, "b" * 40
JOB = "D-aaaaaaaa-AAAAAAAAAAAAAAAAAAAAAAAA-0fff"
START = 1_795_290_000_000  # 2026-11-21 19:40:00


def line(event: str, at: int = 0, **more: Any) -> dict[str, Any]:
    """An event, ``at`` s after the start."""
    return {"time": START + 1000 * at, "node": A, "event": event, "id": JOB, "queue": "q", **more}


ADDED = line("added", client="shop", size=5, retry=300, ttl=900, delay=0, copies=1, repl=1)


def text(*lines: dict[str, Any]) -> list[str]:
    return list(tell([JOB], lines)[JOB].text())


def test_a_life_is_told_in_the_order_of_time() -> None:
    acked = line("acked", 9, client="10.0.0.1:99", reason="client")
    copied = line("copied", 1, node=B, peer=A)
    queued = line("queued", reason="add")
    delivered = line("delivered", 2, client="mailer", nacks=1, deliveries=1)
    assert text(acked, copied, ADDED, queued, delivered) == [
        JOB,
        "  2026-11-21 (UTC)",
        "    19:40:00.000  aaaaaaaa  added to queue q by client shop"
        " (5 bytes, RETRY 300 s, TTL 900 s)",
        "    19:40:00.000  aaaaaaaa  ready for a worker in queue q",
        "    19:40:01.000  bbbbbbbb  this node got a copy from node aaaaaaaa",
        "    19:40:02.000  aaaaaaaa  delivered to client mailer (delivery 3, as this node knows)",
        "    19:40:09.000  aaaaaaaa  done: client 10.0.0.1:99 acknowledged it",
        "  It is done.",
    ]


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        ([ADDED, line("queued", 3, reason="add")], "in queue q for a worker, since .*19:40:03.000"),
        ([{**ADDED, "delay": 60}], "for its delay, which ends at .*19:41:00.000"),
        ([ADDED, line("delivered", 2, client="c")], "client c .* queued again at .*19:45:02.000"),
        ([ADDED, line("delivered", 2), line("working", 100, client="c")], "19:46:40.000"),
        ([{**ADDED, "retry": 0}, line("delivered")], "not delivered again .RETRY 0"),
        ([line("delivered", client="c")], "with client c since .*19:40:00.000.$"),
        ([ADDED, line("paused", until=START + 5000, reason="nack")], "until .*19:40:05.000"),
        ([ADDED, line("dead", reason="attempts"), line("deleted", reason="peer")], "failed"),
        ([ADDED, line("cancelled", reason="peer"), line("queued", 1, reason="add")], "cancelled"),
        ([ADDED, line("expired")], "time to live"),
        ([ADDED, line("deleted", reason="fastack")], "done"),
        ([line("acked", reason="redrive")], "sent back"),
        ([line("deleted", reason="given-up")], "not added"),
        ([line("copied", peer=B, retry=5)], "do not say"),
        ([{**ADDED, "queue": "old"}, line("queued", reason="add"), line("updated", 1, queue="z")],
         "in queue z"),
    ],
)  # fmt: skip
def test_what_it_waits_for_follows_from_its_events(lines: list[dict[str, Any]], state: str) -> None:
    assert re.search(state, waits(lines)), waits(lines)


def test_every_event_that_a_node_logs_has_words() -> None:
    for name in tr.CODES:
        kind, _, reason = name.partition(":")
        if kind in schema.REASONS and (reason or not schema.REASONS[kind]):
            event = line(kind, reason=reason) if reason else line(kind)
            words = said(event, str)
            assert words not in (kind, f"{kind} ({reason})"), name
    assert said(line("ticked", schedule="s", tick=START), str).endswith("2026-11-21 19:40:00.000")
    assert said(line("vanished", reason="magic"), str) == "vanished (magic)"


def test_jobs_that_follow_each_other_are_linked_both_ways() -> None:
    dead = line("dead", 1, reason="attempts")
    (letter, _) = followers(JOB)
    buried = line("queued", 2, id=letter, queue="graves", reason="death")
    assert text(ADDED, dead, buried)[-1] == f"  Its dead letter is {letter} in queue graves."
    told = tell([letter], [ADDED, dead, buried])[letter]
    assert told.links == [f"It is the dead letter of {JOB}."]
    (_, again) = followers(letter)
    assert precedes(letter, again) == f"It was the dead letter {letter}, which REDRIVE sent back."
    assert precedes(JOB, again) == precedes(letter, JOB) == ""
