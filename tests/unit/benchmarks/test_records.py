"""Ratios of several runs, kept and shown together."""

from pathlib import Path

from benchmarks import records
from benchmarks.records import Ratio, Record

NONE, EVERY = "synced: none, pipelined by 1", "synced: every second, pipelined by 1"
FIRST = Record(
    {"date": "2026-11-26", "cpu": "2 x Intel"},
    [Ratio(NONE, "Redis list", 0.96, 1.03), Ratio(EVERY, "NATS (weaker)", 0.56, 0.72)],
)
SECOND = Record(
    {"date": "2026-11-30", "cpu": "2 x AMD"},
    [Ratio(NONE, "Redis list", 1.12, 10.5), Ratio(EVERY, "NATS", 0.56, 0.8)],
)


def test_a_cell_has_the_ranges_over_all_runs() -> None:
    titles, _, redis, nats, *rest = records.summary([FIRST, SECOND]).splitlines()
    assert titles == f"| beside | {NONE} | {EVERY} |"
    assert redis == "| Redis list | **0.96-1.12** (1.03-10.50) |  |"
    assert nats == "| NATS |  | **0.56** (0.72-0.80) |"
    assert rest[-2:] == ["- date 2026-11-26, cpu 2 x Intel", "- date 2026-11-30, cpu 2 x AMD"]


def test_a_server_that_promises_less_is_marked() -> None:
    assert "| NATS |  | **0.56** (0.72) weaker |" in records.summary([FIRST])


def test_what_is_kept_is_read_again_and_replaced_by_its_name(tmp_path: Path) -> None:
    SECOND.write("b", tmp_path)
    FIRST.write("a", tmp_path)
    assert records.read(tmp_path) == [FIRST, SECOND]
    FIRST.write("b", tmp_path)
    assert records.read(tmp_path) == [FIRST, FIRST]


def test_the_kept_records_can_be_shown() -> None:
    assert records.summary(records.read()).count("\n- date ") == len(records.read()) > 0
