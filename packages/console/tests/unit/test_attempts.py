"""Whose tries a wrong password uses up, with a moved clock."""

import pytest

from disque_console.model.attempts import REMEMBERED, Attempts, Browsers

HOME = "192.0.2.1"
EVIL = "192.0.2.66"
NEW = "192.0.2.2"


def guess(attempts: Attempts, address: str, user: str, count: int, now: float = 0.0) -> int:
    """Try ``count`` wrong passwords; returns how many of them were tried."""
    tried = 0
    for _ in range(count):
        keys = attempts.keys(address, user)
        if attempts.wait(keys, now) == 0.0:
            tried += 1
            attempts.failed(keys, now)
    return tried


def wait(attempts: Attempts, address: str, user: str, now: float = 0.0, browser: str = "") -> float:
    return attempts.wait(attempts.keys(address, user, browser), now)


def test_wrong_passwords_are_limited_by_address() -> None:
    attempts = Attempts(tries=3, seconds=60.0)
    assert guess(attempts, EVIL, "ann", 9) == 3
    assert wait(attempts, EVIL, "ann") == 20.0
    assert wait(attempts, EVIL, "bob") == 20.0
    assert wait(attempts, NEW, "bob") == 0.0
    assert wait(attempts, EVIL, "ann", 15.0) == 5.0
    assert wait(attempts, EVIL, "bob", 20.0) == 0.0


def test_who_has_a_network_of_ipv6_has_one_address() -> None:
    attempts = Attempts(tries=3, seconds=60.0)
    assert sum(guess(attempts, f"2001:db8::{i:x}", f"user {i}", 1) for i in range(9)) == 3
    assert wait(attempts, "2001:db8::ffff:1", "ann") == 20.0
    assert wait(attempts, "2001:db8:0:1::1", "ann") == 0.0


def test_a_user_who_has_logged_in_from_an_address_is_not_locked_out_there_by_others() -> None:
    attempts = Attempts(tries=3, seconds=60.0)
    attempts.succeeded(HOME, "ann")
    for i in range(20):
        guess(attempts, f"198.51.100.{i}", "ann", 5)
    assert guess(attempts, HOME, "bob", 9) == 3
    assert wait(attempts, HOME, "ann") == 0.0
    assert guess(attempts, HOME, "ann", 9) == 3  # nor can they guess without end from there
    assert wait(attempts, HOME, "ann") == 20.0


def test_a_browser_with_which_a_user_has_logged_in_has_tries_of_its_own() -> None:
    attempts = Attempts(tries=3, seconds=60.0)
    attempts.succeeded(HOME, "ann")
    guess(attempts, HOME, "ann", 9)
    assert wait(attempts, HOME, "ann") == 20.0
    for address in (HOME, NEW):
        assert wait(attempts, address, "ann", browser="x") == 0.0
    keys = attempts.keys(NEW, "ann", "x")
    for _ in range(3):
        attempts.failed(keys, 0.0)
    assert wait(attempts, HOME, "ann", browser="x") == 20.0
    assert wait(attempts, HOME, "ann", browser="y") == 0.0


def test_a_user_that_others_guess_gets_in_from_a_new_address_with_the_first_try() -> None:
    attempts = Attempts(tries=10, seconds=60.0)
    now = 0.0
    for _ in range(100):  # a wrong password each second, from three addresses
        now += 1.0
        guess(attempts, f"198.51.100.{int(now) % 3}", "ann", 1, now)
        assert wait(attempts, NEW, "ann", now) == 0.0


def test_guesses_from_many_addresses_are_one_a_minute_from_each_and_ten_from_all() -> None:
    attempts = Attempts(tries=10, seconds=60.0)
    addresses = [f"198.51.100.{i}" for i in range(100)]
    tried = [
        sum(guess(attempts, address, "ann", 2, minute * 60.0) for address in addresses)
        for minute in range(5)
    ]
    # First ten by the tries of the user, and then one from each address.
    assert tried[0] <= 10 + 100
    assert all(count <= 10 + 100 for count in tried[1:])
    assert sum(guess(attempts, address, "ann", 50, 1000.0) for address in addresses) <= 10 + 100


def test_a_right_password_does_not_count() -> None:
    attempts = Attempts(tries=2, seconds=60.0)
    for _ in range(50):
        keys = attempts.keys(HOME, "ann")
        attempts.failed(keys, 0.0)
        attempts.forgive(keys, 0.0)
    assert wait(attempts, HOME, "ann") == 0.0
    assert guess(attempts, HOME, "ann", 9) == 2


@pytest.mark.slow
def test_addresses_without_end_take_no_memory_without_end() -> None:
    attempts = Attempts(tries=3, seconds=60.0)
    for number in range(25_000):
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        guess(attempts, address, "n" * 200, 1, number / 1000)
        attempts.succeeded(address, "bob")
    guess(attempts, "x" * 100_000, "ann", 1, 26.0)
    assert len(attempts._used) <= REMEMBERED + 3
    assert len(attempts._known) <= REMEMBERED
    assert max(map(len, attempts._used)) < 400


@pytest.mark.slow
def test_a_user_under_attack_is_not_forgotten_because_of_many_addresses() -> None:
    attempts = Attempts(tries=3, seconds=1e9)
    for number in range(25_000):
        guess(attempts, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", "ann", 1)
    assert guess(attempts, NEW, "ann", 9) == 1


def test_a_clock_that_goes_back_keeps_nobody_out() -> None:
    attempts = Attempts(tries=3, seconds=60.0)
    keys = attempts.keys(HOME, "ann")
    attempts.failed(keys, 5_000.0)
    attempts.forgive(keys, 5_000.0)
    assert attempts.wait(keys, 1_000.0) == 0.0
    assert guess(attempts, HOME, "ann", 9, 1_000.0) == 3
    assert wait(attempts, HOME, "ann", 1_000.0) == 20.0


def test_a_browser_s_cookie_has_an_id_for_each_user_that_stays() -> None:
    browsers = Browsers(b"s" * 32)
    first = browsers.with_user("", "ann")
    id = browsers.id(first, "ann")
    assert id
    assert browsers.id(first, "bob") == ""
    both = browsers.with_user(first, "bob")
    assert browsers.id(both, "ann") == id
    assert browsers.id(both, "bob") not in ("", id)
    assert browsers.id(browsers.with_user(both, "ann"), "ann") == id
    assert browsers.id(browsers.with_user("", "ann"), "ann") != id


def test_a_browser_s_cookie_has_room_for_few_users_and_names_none() -> None:
    browsers = Browsers(b"s" * 32)
    cookie = ""
    for number in range(50):
        cookie = browsers.with_user(cookie, "\udcff" * 195 + str(number))
        assert len(cookie) < 500
    ids = [browsers.id(cookie, "\udcff" * 195 + str(number)) for number in range(50)]
    assert [bool(id) for id in ids] == [False] * 45 + [True] * 5


@pytest.mark.parametrize("cookie", ["", "x", "WyJ4IiwiYW5uIiwzLDk5OTk5OTk5OTld.AAAA", "ä" * 9])
def test_a_forged_cookie_of_a_browser_is_none(cookie: str) -> None:
    browsers = Browsers(b"s" * 32)
    assert browsers.id(cookie, "ann") == ""
    assert browsers.id(Browsers(b"t" * 32).with_user("", "ann"), "ann") == ""
    assert browsers.id(browsers.with_user(cookie, "ann"), "ann")
