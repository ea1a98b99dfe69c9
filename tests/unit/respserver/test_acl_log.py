"""ACL LOG, and the limit on wrong passwords."""

from disque_trio.process.addresses import place_of
from disque_trio.respserver.acl.log import GROUPED, Log
from disque_trio.respserver.acl.logins import MOST_PLACES, Logins

NOW = 1_700_000_000_000


def test_the_same_again_within_a_minute_is_one_entry() -> None:
    log = Log()
    log.add(NOW, "key", "toplevel", b"q", b"a", "one")
    log.add(NOW + 1, "command", "toplevel", b"get", b"a", "one")
    log.add(NOW + GROUPED, "key", "toplevel", b"q", b"a", "two")
    assert [(e.reason, e.count, e.client, e.time) for e in log.entries] == [
        ("key", 2, "two", NOW + GROUPED),
        ("command", 1, "one", NOW + 1),
    ]
    log.add(NOW + 2 * GROUPED + 1, "key", "toplevel", b"q", b"a", "three")
    assert [e.count for e in log.entries] == [1, 2, 1]
    log.add(NOW + 2 * GROUPED + 1, "key", "multi", b"q", b"a", "three")
    assert len(log.entries) == 4


def test_the_log_is_bounded() -> None:
    log = Log()
    log.max_len = 3
    for i in range(10):
        log.add(NOW, "key", "toplevel", b"%d" % i + bytes(10_000), b"a" * 10_000, "c")
    assert [e.object[:1] for e in log.entries] == [b"9", b"8", b"7"]
    assert all(len(e.object) < 1000 and len(e.user) < 1000 for e in log.entries)
    log.max_len = 0
    log.trim()
    assert not log.entries


def attempts(logins: Logins, ip: str, count: int, now: int, start: int = 0) -> list[bool]:
    """Try ``count`` wrong passwords; return for each whether it was checked."""
    looked = []
    for i in range(start, start + count):
        password = b"guess %d" % i
        looked.append(logins.wait(ip, b"u", password, now) == 0)
        if looked[-1]:
            logins.failed(ip, b"u", password, now)
    return looked


def test_many_wrong_passwords_cause_a_wait() -> None:
    logins = Logins()
    logins.limit = 10
    assert attempts(logins, "192.0.2.1", 15, NOW) == [True] * 10 + [False] * 5
    wait = logins.wait("192.0.2.1", b"u", b"the right one", NOW)
    assert 5_000 <= wait <= 6_001
    assert logins.wait("192.0.2.2", b"u", b"the right one", NOW) == 0
    assert wait - 3_001 <= logins.wait("192.0.2.1", b"u", b"any", NOW + 3_000) <= wait - 2_999
    assert logins.wait("192.0.2.1", b"u", b"the right one", NOW + wait) == 0
    assert sum(attempts(logins, "192.0.2.1", 100, NOW + 60_000, 100)) == 10


def test_a_wrong_password_that_is_repeated_locks_nobody_out() -> None:
    logins = Logins()
    logins.limit = 10
    for i in range(1000):
        assert logins.wait("192.0.2.1", b"u", b"old", NOW + i) == 0
        logins.failed("192.0.2.1", b"u", b"old", NOW + i)
    assert logins.wait("192.0.2.1", b"u", b"new", NOW + 1000) == 0
    assert sum(attempts(logins, "192.0.2.1", 20, NOW + 1000)) >= 9


def test_without_a_limit_or_an_address_all_attempts_are_allowed() -> None:
    logins = Logins()
    assert all(attempts(logins, "192.0.2.1", 100, NOW))
    logins.limit = 1
    assert all(attempts(logins, "", 100, NOW))


def test_one_who_has_many_addresses_is_one() -> None:
    logins = Logins()
    logins.limit = 10
    for i in range(10):
        assert attempts(logins, f"2001:db8:0:1::{i + 1:x}", 1, NOW, i) == [True]
    assert attempts(logins, "2001:db8:0:1:ffff::1", 1, NOW, 99) == [False]
    assert attempts(logins, "2001:db8:0:2::1", 1, NOW) == [True]
    assert place_of("::ffff:192.0.2.1") == place_of("192.0.2.1")
    assert place_of("fe80::1%eth0") == place_of("fe80::2")
    assert place_of("?") == "?"


def test_what_is_remembered_is_bounded() -> None:
    logins = Logins()
    logins.limit = 2
    for i in range(MOST_PLACES + 100):
        logins.failed(f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}", b"u", b"p", NOW)
    assert len(logins._places) == MOST_PLACES


def test_who_has_logged_in_from_a_place_is_not_locked_out_by_guesses_of_other_names() -> None:
    logins = Logins()
    logins.limit = 10
    logins.succeeded("192.0.2.1", b"known", NOW)
    assert attempts(logins, "192.0.2.1", 15, NOW) == [True] * 10 + [False] * 5
    assert logins.wait("192.0.2.1", b"known", b"right", NOW) == 0
    assert logins.wait("192.0.2.1", b"other", b"right", NOW) > 0


def test_a_user_who_has_logged_in_from_a_place_has_as_many_tries_there_as_others() -> None:
    logins = Logins()
    logins.limit = 10
    logins.succeeded("192.0.2.1", b"u", NOW)
    assert attempts(logins, "192.0.2.1", 15, NOW) == [True] * 10 + [False] * 5
    logins.succeeded("192.0.2.1", b"u", NOW)  # by somebody who tried no wrong password
    assert attempts(logins, "192.0.2.1", 3, NOW, 20) == [False] * 3
    assert logins.wait("192.0.2.1", b"other", b"right", NOW) == 0
    assert sum(attempts(logins, "192.0.2.2", 15, NOW)) == 10


def test_what_is_remembered_of_logins_is_bounded_and_outlives_guesses_from_many_places() -> None:
    logins = Logins()
    logins.limit = 10
    logins.succeeded("192.0.2.1", b"u", NOW)
    for i in range(MOST_PLACES + 100):
        logins.failed(f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}", b"u", b"p", NOW)
        logins.succeeded("192.0.2.2", b"u%d" % (i % (MOST_PLACES - 1)), NOW)
    assert len(logins._known) == MOST_PLACES
    attempts(logins, "192.0.2.1", 15, NOW)
    assert logins.wait("192.0.2.1", b"another", b"right", NOW) == 0


def test_a_clock_that_goes_back_allows_no_more_attempts() -> None:
    logins = Logins()
    logins.limit = 2
    assert attempts(logins, "192.0.2.1", 3, NOW) == [True, True, False]
    assert attempts(logins, "192.0.2.1", 1, NOW - 100_000, 7) == [False]
