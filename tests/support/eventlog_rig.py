"""A node's event log, with helpers for tests."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from disque_trio.eventlog.feed import Feed
from disque_trio.eventlog.recorder import EventLog, Settings
from disque_trio.eventlog.schema import Event
from tests.support.harness import HANG_SECONDS

NODE = "0123456789abcdef0123456789abcdef01234567"


class Source:
    """A node's source of events."""

    def __init__(self) -> None:
        self.eventing = False
        self.events: list[Event] = []
        self.now = 1_795_290_000_000
        self.made = 0
        self._sleepers: list[Callable[[], None]] = []

    def when_stirred(self, wake: Callable[[], None]) -> None:
        self._sleepers.append(wake)

    def stir(self) -> None:
        """Wake those who wait for events."""
        sleepers, self._sleepers = self._sleepers, []
        for wake in sleepers:
            wake()

    @property
    def sleepers(self) -> int:
        """The number of those who wait for events."""
        return len(self._sleepers)

    def make(self, count: int) -> None:
        if self.eventing:
            if not self.events:
                self.events.append((self.now, "queued", b"q", "add"))
            self.events += [b"D-%08d" % n for n in range(self.made, self.made + count)]
            self.made += count
            self.stir()


class Notes:
    """A log that counts its messages."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def notice(self, event: str, **fields: object) -> None:
        pass

    def warning(self, event: str, **fields: object) -> None:
        self.warnings.append(event)


class Rig:
    def __init__(self, directory: Path, feed: Feed | None = None) -> None:
        self.directory = directory
        self.source = Source()
        self.notes = Notes()
        self.nodes = [NODE]  # of the cluster
        self.log = EventLog(
            self.source, NODE, self.notes, feed, run="ab12", nodes=lambda: [*self.nodes]
        )

    def settings(self, compress: bool = False, size: int = 1 << 20) -> Settings:
        return Settings(self.directory, size, 300, compress, 0, 0)

    def value(self, field: str) -> str | int | float:
        return self.log.info()[f"event_log_{field}"]

    def child(self) -> int:
        """The writing process, or 0."""
        return int(self.value("process_id"))

    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())

    def lines(self) -> list[dict[str, object]]:
        """All lines in closed files, in order."""
        names = [name for name in self.names() if name.endswith(".jsonl")]
        texts = [(self.directory / name).read_text() for name in names]
        events = map(json.loads, "".join(texts).splitlines())
        return [event for event in events if event["event"] != "segment"]

    def ids(self) -> list[int]:
        return [int(str(line["id"])[2:]) for line in self.lines() if "id" in line]


async def until(condition: Callable[[], object], seconds: float = HANG_SECONDS) -> None:
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(0.005)


@asynccontextmanager
async def running(rig: Rig, seconds: float = HANG_SECONDS) -> AsyncIterator[None]:
    """Run a node with an event log, and end it cleanly.

    The process has so many ``seconds`` to end. One that needs longer would be left alone, to be
    found by a later test.
    """
    rig.log.apply(rig.settings())
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.log.run, rig.source.when_stirred)
            yield
            nursery.cancel_scope.cancel()
        await rig.log.close(seconds)
    finally:
        rig.log.abandon()
