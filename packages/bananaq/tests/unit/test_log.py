"""The log of the events of a queue."""

import random
from bisect import bisect_right

import pytest

from disque_bananaq.core.events import BLOCK, Queue, QueueLog, StoredEvent

QUEUE = Queue(b"q")


def make(t: int) -> StoredEvent:
    return StoredEvent(QUEUE, t, t + 1, b"", None)


def content(log: QueueLog) -> list[int]:
    return [event.t for block in log.blocks for event in block.events]


def test_an_empty_log_has_no_events() -> None:
    log = QueueLog()
    assert (log.first(), log.last(), log.find(1), log.after(0), log.count) == (None,) * 4 + (0,)
    assert log.count_after(0, log.counts_from()) == 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("in_order", [True, False])
def test_a_log_behaves_like_a_sorted_list(seed: int, in_order: bool) -> None:
    rng = random.Random(seed)
    log = QueueLog()
    model: list[int] = []
    events: dict[int, StoredEvent] = {}
    fresh = 0
    for round_ in range(60):
        for _ in range(rng.randrange(300)):
            fresh += rng.randrange(1, 4)
            t = fresh if in_order else rng.randrange(1, 10**9)
            if t in events:
                continue
            events[t] = make(t)
            log.add(events[t])
            model.insert(bisect_right(model, t), t)
        share = rng.choice([0.05, 0.3, 0.97]) if round_ % 7 else 1.0
        for t in rng.sample(model, int(len(model) * share)):
            log.remove(events.pop(t))
        model = sorted(events)
        assert content(log) == model
        assert log.count == len(model)
        counts = log.counts_from()
        probes = [0, 10**10, *rng.sample(model, min(20, len(model)))]
        for t in [other for probe in probes for other in (probe - 1, probe, probe + 1)]:
            behind = model[bisect_right(model, t) :]
            found = log.after(t)
            assert (None if found is None else found.t) == (behind[0] if behind else None)
            assert log.find(t) is events.get(t)
            assert log.count_after(t, counts) == len(behind)
        assert [getattr(log.first(), "t", None)] == (model[:1] or [None])
        assert [getattr(log.last(), "t", None)] == (model[-1:] or [None])


def test_a_log_of_few_long_lived_events_has_few_blocks() -> None:
    log = QueueLog()
    events = [make(t) for t in range(1, 200 * BLOCK + 1)]
    for event in events:
        log.add(event)
    for event in events:
        if event.t % BLOCK:
            log.remove(event)
    assert log.count == 200
    assert len(log.blocks) <= 4
    for event in events:
        if event.t % BLOCK == 0:
            log.remove(event)
    assert log.blocks == []


def test_blocks_can_be_removed_from_the_end() -> None:
    log = QueueLog()
    for t in range(1, 2 * BLOCK):
        log.add(make(t))
    assert [event.t for event in log.pop_block()] == list(range(BLOCK + 1, 2 * BLOCK))
    assert log.count == BLOCK
    log.add(make(5 * BLOCK))
    log.add(make(5 * BLOCK + 1))
    assert content(log) == [*range(1, BLOCK + 1), 5 * BLOCK, 5 * BLOCK + 1]
