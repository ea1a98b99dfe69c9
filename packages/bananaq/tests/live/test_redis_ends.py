"""bananaq when the Redis with its events goes away and comes back."""

import json
import signal
import threading
from collections.abc import Iterator

import hiredis
import pytest

from packages.bananaq.tests.support.banana_books import Books
from packages.bananaq.tests.support.banana_daemons import (
    Daemon,
    Given,
    RedisServer,
    drain,
    now_us,
    pipeline,
)
from packages.bananaq.tests.support.banana_fixtures import DaemonFactory
from tests.support.harness import HANG_SECONDS, wait_until

pytestmark = pytest.mark.live


@pytest.fixture
def own_daemon(run_bananaq: DaemonFactory, own_redis: RedisServer) -> Iterator[Daemon]:
    """A daemon with its own Redis, which keeps its data."""
    return run_bananaq("redis", redis=own_redis)


def test_a_redis_that_goes_away_and_comes_back_has_lost_nothing(
    own_daemon: Daemon, own_redis: RedisServer
) -> None:
    daemon = own_daemon
    wire = daemon.wire()
    books = Books(daemon, "q")
    blocked, told = daemon.wire(), daemon.wire()
    blocked.send("QGET", "other", "g", "BLOCK", 20)
    told.send("QNOTIFY", "g", 20, "other")
    wait_until(lambda: daemon.status("other", "g")["consumers"] == 2)
    own_redis.stop()
    for request in (
        ("QADD", "q", "60", "body"),
        ("QGET", "q", "g"),
        ("QACK", "q", "g", "1_2"),
        ("QNOTIFY", "g", "0", "q"),
        ("QSTATUS",),
        ("QSTATUS", "q"),
        ("QFLUSH", "q"),
        ("QRPOP", "q"),
    ):
        started = now_us()
        assert wire.error(*request).startswith("ERR server-side error: ")
        assert now_us() - started < 3_000_000
    assert wire("QADD", "q", 60, "nobody hears", "NOBLOCK") == b"OK"
    assert wire("PING") == b"PONG"
    own_redis.start()
    wait_until(lambda: isinstance(wire("QSTATUS", "q"), list))
    books.check(daemon)
    for waiter in (blocked, told):
        # It got an error, or it is still connected and served.
        waiter.sock.setblocking(True)
    wire("QADD", "other", 60, "one")
    wire("QADD", "other", 60, "two")
    got = blocked.read()
    assert isinstance(got, hiredis.ReplyError) or Given(got).body == b"one"
    assert isinstance(heard := told.read(), hiredis.ReplyError) or heard == b"other"
    assert blocked("QNOTIFY", "g", 5, "other") == b"other"


def test_an_idle_daemon_reports_the_state_of_its_redis(
    own_daemon: Daemon, own_redis: RedisServer
) -> None:
    def link() -> str:
        return own_daemon.info("redis")["redis_link_status"]

    def told(level: str) -> int:
        rows = [json.loads(line) for line in own_daemon.log.read_text().splitlines()]
        return sum(row["level"] == level and "redis" in row for row in rows)

    assert own_redis.process is not None
    wait_until(lambda: link() == "up")
    assert told("warning") == 0
    own_redis.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: link() == "hung")
    own_redis.process.send_signal(signal.SIGCONT)
    wait_until(lambda: link() == "up")
    own_redis.stop()
    wait_until(lambda: link() == "down")
    assert told("warning") == 2
    assert own_daemon.ask("INFO").count(b"redis_link_status:down") == 1


def test_a_daemon_with_its_own_events_reports_no_redis(shared_embedded: Daemon) -> None:
    assert b"redis_" not in shared_embedded.ask("INFO")


def test_a_redis_killed_under_load_has_all_confirmed_events(
    own_daemon: Daemon, own_redis: RedisServer
) -> None:
    daemon = own_daemon
    added: list[bytes] = []
    acked: list[bytes] = []
    over = threading.Event()
    failed: list[str] = []

    def produce() -> None:
        wire = daemon.wire()
        while not over.is_set():
            for reply in pipeline(wire, [("QADD", "q", 300, "body")] * 20):
                if isinstance(reply, bytes):
                    added.append(reply)
                else:
                    failed.append(str(reply))
        wire.close()

    def consume() -> None:
        wire = daemon.wire()
        while not over.is_set():
            reply = wire("QGET", "q", "g", "EX", 60, "BLOCK", "0.2")
            if isinstance(reply, hiredis.ReplyError):
                failed.append(str(reply))
            elif reply is not None and wire("QACK", "q", "g", Given(reply).id) == 1:
                acked.append(Given(reply).id)
        wire.close()

    threads = [threading.Thread(target=target) for target in (produce, consume, consume)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(2):
            count = len(added)
            wait_until(lambda count=count: len(added) > count + 300 and acked)
            own_redis.stop()
            own_redis.start()
            count = len(acked)
            wait_until(lambda count=count: len(acked) > count + 20)
    finally:
        over.set()
        for thread in threads:
            thread.join(HANG_SECONDS)
    assert failed
    assert all(text.startswith("ERR server-side error: ") for text in failed)
    wire = daemon.wire()
    everything = [event.base for event in drain(wire, "q", "new")]
    assert everything == sorted(set(everything))
    assert set(added) <= set(everything)
    assert len(acked) == len(set(acked))
    rest = {event.base for event in drain(wire, "q", "g")}
    assert not rest & set(acked)


def test_a_daemon_starts_before_its_redis(
    run_bananaq: DaemonFactory, own_redis: RedisServer
) -> None:
    own_redis.stop()
    daemon = run_bananaq("redis", redis=own_redis)
    wire = daemon.wire()
    assert wire.error("QADD", "q", 60, "body").startswith("ERR server-side error: ")
    waiter = daemon.wire()
    assert isinstance(waiter("QGET", "q", "g", "BLOCK", 20), hiredis.ReplyError)
    own_redis.start()
    wait_until(lambda: isinstance(wire("QADD", "q", 60, "body"), bytes))
    assert Given(wire("QGET", "q", "g", "BLOCK", 5)).body == b"body"
