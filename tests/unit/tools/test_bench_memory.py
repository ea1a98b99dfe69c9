"""The measurement of memory: arguments, sums, tables."""

import pytest

from tools.bench.dialects import encode
from tools.bench.filler import ends, ids_in
from tools.bench.load import LoadError
from tools.bench.memory import Growth, Held, Step, growth_text, held_table, steps_table
from tools.bench.stops import Stops, watches

IDS = [b"D-12345678-%024d-05a1" % number for number in range(5)]


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_a_job_takes_what_the_process_grew_by() -> None:
    held = Held("node alone", 1_000, 10_000, 410_000, 90_000)
    assert held.per_job == 400
    assert held.kept == 0.2
    assert Held("node alone", 1_000, 10_000, 410_000).kept is None


def test_each_process_has_a_row() -> None:
    alone = Held("node alone", 1_000_000, 40_000_000, 440_000_000, 80_000_000)
    large = Held("node alone", 10_000_000, 40_000_000, 4_040_000_000)
    first, second = cells(held_table([alone, large]))
    assert first == ["node alone", "1,000,000", "**400**", "40", "440", "80", "10%"]
    assert second == ["node alone", "10,000,000", "**400**", "40", "4,040", "", ""]


def test_each_step_has_a_row_with_what_was_seen() -> None:
    inside = Step("ADDJOB", 10, Stops(0.0, 2.25, 1.0, 0.0, 0, 0))
    both = Step("the collector runs", 10, Stops(3.0, 2.0, 1.0, 0.75, 1, 42))
    first, second = cells(steps_table([inside, both]))
    assert first == ["ADDJOB", "10", "", "2.2", "**1.0**", "0", "", ""]
    assert second == ["the collector runs", "10", "3.0", "2.0", "**1.0**", "1", "0.8", "42"]


def test_growth_is_told_by_the_round() -> None:
    grown = Growth(1_000, 10, (50_000_000, 50_100_000, 50_300_000))
    assert grown.per_round == 150_000
    assert growth_text(grown).endswith("has 50.0, 50.1, 50.3 MB: +150 kB a round.")


def test_ids_are_read_from_the_replies_of_batches() -> None:
    replies = [b"+%b\r\n+%b\r\n" % (IDS[0], IDS[1]), b"+%b\r\n" % IDS[2]]
    assert ids_in(replies) == IDS[:3]


def test_jobs_are_ended_many_at_once_and_every_one_must_be_known() -> None:
    first, second = ends(b"ACKJOB", IDS, 2, 2)
    assert first.request == encode(b"ACKJOB", *IDS[:2]) + encode(b"ACKJOB", *IDS[2:4])
    assert second.request == encode(b"ACKJOB", IDS[4])
    assert first.shape.complete(b":2\r\n:2\r\n", 1)
    assert not first.shape.complete(b":2\r\n", 1)
    assert second.shape.complete(b":1\r\n", 1)
    with pytest.raises(LoadError):
        first.shape.complete(b":2\r\n:1\r\n", 1)


def test_a_watch_says_what_was_written_until_it_is_reset() -> None:
    with watches(2) as (watch, other):
        assert watch.command(("server", "x"))[-2:] == ("server", "x")
        watch._figures[0] = 3_000_000
        watch._figures[3] = 2
        assert watch.read(4.0) == Stops(4.0, 3.0, 0.0, 0.0, 2, 0)
        assert other.read() == Stops(0.0, 0.0, 0.0, 0.0, 0, 0)
        watch.reset()
        assert watch.read() == Stops(0.0, 0.0, 0.0, 0.0, 0, 0)
