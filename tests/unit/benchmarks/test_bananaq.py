"""The measurement of bananaq: its tables."""

from benchmarks.bananaq import EMBEDDED, STREAMS, Sample, held_table, rates_table


def sample(subject: str, step: str, cost: float, held: int = 0, rate: float = 1000) -> Sample:
    return Sample(subject, step, 10, 16, held, rate, 0.002, cost)


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_rates_are_shown_beside_those_of_streams_in_the_same_round() -> None:
    found = []
    for factor in (1, 2):
        found += [
            sample(STREAMS, "QADD", 1.0, rate=1000 * factor),
            sample(EMBEDDED, "QADD", 3.0 * factor, rate=500),
        ]
    streams, embedded = cells(rates_table(found))
    assert streams == [f"QADD, {STREAMS}", "10", "16", "1,500", "1.00", "2.00", "1.00", "1.00"]
    assert embedded[:3] == [f"QADD, {EMBEDDED}", "10", "16"]
    assert embedded[3:5] == ["500", "**0.38** (0.25-0.50)"]
    assert embedded[6:] == ["4.50", "**4.50** (3.00-6.00)"]


def test_growth_is_shown_beside_the_fewest_events_held() -> None:
    costs = {1_000: 2.0, 100_000: 3.0}
    found = [sample(STREAMS, "QADD", cost, held) for held, cost in costs.items()]
    found += [sample(STREAMS, "QGET+QACK", 1.0, held) for held in costs]
    text = held_table(found)
    assert text.startswith("| CPU beside that with 1,000 held | 1,000 | 100,000 |")
    adds, takes = cells(text)
    assert adds == [f"QADD, {STREAMS}", "1.00", "**1.50** (1.50-1.50)"]
    assert takes == [f"QGET+QACK, {STREAMS}", "1.00", "1.00"]
