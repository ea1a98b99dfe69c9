"""What the event log says about the ticks of schedules."""

import json
from typing import Any

import pytest

from disque_trio.eventlog.lines import LineWriter
from disque_trio.node.core.ticks import GRACE, MOST_NOTED
from tests.support.node_bench import START, Bench


def advance(bench: Bench, seconds: int) -> None:
    for _ in range(seconds):
        bench.advance(1)
        bench.node.commit()


def told(bench: Bench) -> list[dict[str, Any]]:
    """Return the lines about ticks."""
    text = LineWriter("0" * 40).lines(bench.node.notes.events)
    lines = [json.loads(line) for line in text.splitlines()]
    return [line for line in lines if line["event"] in ("ticked", "missed")]


def test_the_event_log_has_the_job_of_each_tick(bench: Bench) -> None:
    bench.node.notes.eventing = True
    bench("CRON", "SET", "s", "@every 10s", "q", "body")
    advance(bench, 10)
    (id,) = bench.get_all()
    (line,) = told(bench)
    assert (line["event"], line["id"], line["queue"]) == ("ticked", id.decode(), "q")
    assert (line["schedule"], line["tick"]) == ("s", START + 10_000)


@pytest.mark.parametrize("catchup", [False, True])
def test_the_event_log_has_what_was_missed_while_no_node_was_there(
    bench: Bench, catchup: bool
) -> None:
    bench.node.notes.eventing = True
    words = ["CATCHUP"] if catchup else []
    bench("CRON", "SET", "s", "@every 600s", *words, "q", "body")
    advance(bench, 1)
    since = bench.now
    bench.now += 3_599_000 + GRACE
    advance(bench, 2)
    lines = told(bench)
    first = (since // 600_000 + 1) * 600_000
    assert [line["tick"] for line in lines] == [first + n * 600_000 for n in range(6)]
    events = [line["event"] for line in lines]
    assert events == ["missed"] * 5 + ["ticked" if catchup else "missed"]
    assert {line.get("reason") for line in lines[:5]} == {"down"}
    assert not any("until" in line for line in lines)


def test_of_very_many_ticks_in_a_row_the_last_ones_are_in_one_line(bench: Bench) -> None:
    bench.node.notes.eventing = True
    bench("CRON", "SET", "s", "@every 1s", "q", "body")
    advance(bench, 1)
    since = bench.now
    bench.now += 3_600_000
    advance(bench, 2)
    lines = [line for line in told(bench) if line["event"] == "missed"]
    assert len(lines) == MOST_NOTED
    assert [line["tick"] - since for line in lines[:3]] == [1000, 2000, 3000]
    assert [line["tick"] for line in lines if "until" in line] == [lines[-1]["tick"]]
    assert lines[-1]["until"] - since >= 3_600_000


def test_the_event_log_has_what_was_refused_and_nothing_of_what_was_paused_or_deleted(
    bench: Bench,
) -> None:
    bench.node.notes.eventing = True
    for name in ("s", "paused", "deleted"):
        bench("CRON", "SET", name, "@every 60s", "q", "body")
    bench("CRON", "PAUSE", "paused")
    bench("CRON", "DEL", "deleted")
    bench("PAUSE", "q", "in")
    advance(bench, 60 + GRACE // 1000 + 10)
    (line,) = told(bench)
    assert (line["event"], line["reason"], line["schedule"]) == ("missed", "refused", "s")


def test_what_was_missed_as_its_user_has_no_rights_was_refused(bench: Bench) -> None:
    bench.node.notes.eventing = True
    bench("ACL", "SETUSER", "eve", "on", "nopass", "~q", "+cron")
    client = bench.client()
    bench.ask(client, "AUTH", "eve", "any")
    assert bench.ask(client, "CRON", "SET", "s", "@every 600s", "q", "body") == b"OK"
    bench("ACL", "DELUSER", "eve")
    advance(bench, 600 + GRACE // 1000 + 10)
    (line,) = told(bench)
    assert (line["event"], line["reason"]) == ("missed", "refused")
