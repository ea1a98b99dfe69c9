"""A queue with events in every possible state, and a check that they survive."""

import hiredis

from packages.bananaq.tests.support.banana_daemons import Daemon, Given, drain, now_us, pipeline
from tests.support.harness import wait_until


class Books:
    """A queue with events in every possible state, and the replies about them.

    Attributes:
        held: unacknowledged events of groups. acked: acknowledged ones. status: the groups' counts.
        redo: what ``g`` put back. short: what ``k`` holds until ``short_until`` (µs). last: the
            newest.
    """

    def __init__(self, daemon: Daemon, queue: str) -> None:
        wire = daemon.wire()
        self.queue = queue
        self.held: dict[str, list[Given]] = {}
        self.acked: dict[str, list[Given]] = {}
        pipeline(wire, [("QADD", queue, 300, n) for n in range(200)])
        # Expires before the check.
        self.over = Given([wire("QADD", queue, "0.3", "short"), b""]).ends
        for n in range(3):
            wire("QLPUSH", queue, f"own{n}", f"pushed{n}")
        wire("QRPUSH", queue, "front", "first")
        for group, count in (("g", 60), ("h", 150), ("okq", 20)):
            events = [Given(wire("QGET", queue, group, "EX", 60)) for _ in range(count)]
            for event in events[: count // 2]:
                if group != "okq" or event.body != b"first":
                    assert wire("QACK", queue, group, event.id) == 1
            self.acked[group] = events[: count // 2]
            self.held[group] = events[count // 2 :]
        assert wire("QACK", queue, "front") == 1
        # Delivered twice: only the second delivery can be acknowledged.
        for group in ("g", "h"):
            event = self.held[group].pop(0)
            assert wire("QACK", queue, group, event.id, "REDO") == 1
            again = Given(wire("QGET", queue, group, "EX", 60))
            assert again.id == event.id + b"_2"
            self.held[group].append(again)
        self.redo = self.held["g"].pop(0)
        assert wire("QACK", queue, "g", self.redo.id, "REDO") == 1
        # Held for a short time: redelivered afterwards, even if the server was down then.
        self.short = Given(wire("QGET", queue, "k", "EX", "1.0"))
        self.short_until = now_us() + 1_000_000
        self.status = {group: daemon.status(queue, group) for group in self.held}
        self.last = Given([wire("QADD", queue, 300, "last"), b""])

    def check(self, daemon: Daemon) -> None:
        """Check that nothing has changed."""
        wait_until(lambda: now_us() > self.over)
        wire, queue = daemon.wire(), self.queue
        deliveries = [Given(wire("QGET", queue, "k", "EX", 60)) for _ in range(3)]
        if now_us() < self.short_until:
            assert self.short.base not in {event.base for event in deliveries}
            again = Given(wire("QGET", queue, "new", "EX", 60))  # a new group can take it
            assert again.id == self.short.base
        for group, events in self.acked.items():
            for event in events:
                assert wire("QACK", queue, group, event.id) == 0
        redone = Given(wire("QGET", queue, "g", "EX", 60))
        assert redone.id == self.redo.base + b"_2"
        for group, events in self.held.items():
            twice = events[-1]
            if twice.delivery == 2:
                assert wire("QACK", queue, group, twice.base) == 0
            assert [wire("QACK", queue, group, event.id) for event in events] == [1] * len(events)
        duplicate = wire("QLPUSH", queue, "own1", "again")
        assert isinstance(duplicate, hiredis.ReplyError)
        new = Given([wire("QADD", queue, 300, "new"), b""])
        assert new.added > self.last.added
        had = {event.base for event in self.acked["g"] + self.held["g"]} | {redone.base}
        rest = [event.base for event in drain(wire, queue, "g")]
        assert len(rest) == len(set(rest))
        assert not set(rest) & had
        bodies = {event.body for event in drain(wire, queue, "of all")}
        assert bodies == {
            *(b"%d" % n for n in range(200)),
            b"pushed0", b"pushed1", b"pushed2", b"first", b"last", b"new",
        }  # fmt: skip
        assert len(rest) + len(had) == len(bodies)
        missed = [event for event in deliveries if event.base == self.short.base]
        while not missed:
            event = Given(wire("QGET", queue, "k", "EX", 60, "BLOCK", 5))
            if event.base == self.short.base:
                assert self.short_until - 100_000 <= now_us()
                missed.append(event)
        assert missed[0].delivery == 2
