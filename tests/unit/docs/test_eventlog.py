"""docs/eventlog.md agrees with the vocabulary of the event log."""

import re
from pathlib import Path

from disque_trio.eventlog.schema import (
    KEYS,
    LOG_KINDS,
    NODE_FACTS,
    POLICY,
    REASONS,
    STOP_REASONS,
    STOPPED,
    TICK_REASONS,
)

PAGE = Path(__file__).parents[3] / "docs" / "eventlog.md"


def table(head: str) -> list[list[str]]:
    """Return the rows of the table with this first line, as cells."""
    lines = PAGE.read_text().split(f"{head}\n", 1)[1].splitlines()[1:]
    rows = lines[: lines.index("")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def words(cell: str) -> list[str]:
    return re.findall(r"`([a-z-]+)`", cell)


def test_the_page_has_every_kind_of_event_with_its_reasons() -> None:
    told = {
        kind: words(row[2]) if len(row) > 2 else []
        for row in table("| Event | When | Reason |")
        for kind in words(row[0])
    }
    expected: dict[str, list[str]] = {kind: list(reasons) for kind, reasons in REASONS.items()}
    expected |= {kind: list(reasons) for kind, reasons in TICK_REASONS.items()}
    expected |= {kind: [] for kind in (*LOG_KINDS, POLICY)} | {STOPPED: [*STOP_REASONS]}
    assert told == expected


def test_the_page_has_every_key_of_a_line() -> None:
    told = [key for row in table("| Key | What it is |") for key in words(row[0])]
    assert told == list(KEYS)


def test_the_page_has_every_key_of_a_first_line() -> None:
    told = [key for row in table("| Key of the first line | What it is |") for key in words(row[0])]
    assert told == ["name", "after", "events", *NODE_FACTS]
