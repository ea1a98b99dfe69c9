"""The metrics of events and groups, collected while these change."""

import random
from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from disque_bananaq.core.embedded import EmbeddedStore
from disque_bananaq.core.requests import Ack, Add, Get
from disque_bananaq.metrics import EventFigures
from disque_trio.metrics.formats import Formats
from disque_trio.metrics.scrapes import write_page
from disque_trio.metrics.sheet import Sheet

NOW = 1_700_000_000_000  # ms


@pytest.mark.parametrize("seed", range(10))
def test_no_group_appears_twice_whatever_happens_meanwhile(seed: int) -> None:
    rng = random.Random(seed)
    store = EmbeddedStore()
    most = rng.choice((0, 2, 100))
    figures = EventFigures(store, lambda: most)
    now = NOW

    def something() -> None:
        nonlocal now
        queue, group = b"q%d" % rng.randrange(9), b"g%d" % rng.randrange(60)
        what = rng.randrange(5)
        if what < 2:
            store.run(Add(queue, b"body", (rng.randrange(1, 60) * 1_000_000, False)), now)
        elif what == 2:
            got = store.run(Get(queue, group, (10_000_000, False)), now)
            if got.event is not None and rng.random() < 0.5:
                store.run(Ack(queue, group, got.event.id), now)
        elif what == 3:
            store.enter(queue, group, 1)
        else:
            now += rng.randrange(5_000)
            store.tick(now)

    for _ in range(500):
        something()
    for _ in range(5):
        sheet = Sheet()
        for _ in figures.collect(sheet):
            if rng.random() < 0.3:
                something()
        chunks: list[bytes] = []
        for _ in write_page(sheet, Formats().of(""), chunks.append):
            pass
        for family in text_string_to_metric_families(b"".join(chunks).decode()):
            keys = Counter((sample.name, *sample.labels.items()) for sample in family.samples)
            assert [key for key, count in keys.items() if count > 1] == []
            assert all(sample.value >= 0 for sample in family.samples)
