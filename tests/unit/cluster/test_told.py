"""What is logged about strangers: each thing once for a while, and not without limit."""

from disque_trio.cluster.told import Told

NOW = 1_700_000_000_000
HOUR = 3_600_000


def test_each_text_is_new_once_per_address_and_period() -> None:
    told = Told(10, HOUR)
    told.renew(NOW)
    assert told.is_new("a", "192.0.2.1")
    told.renew(NOW + HOUR - 1)
    assert not told.is_new("a", "192.0.2.1")
    assert told.is_new("a", "192.0.2.2")
    assert told.is_new("b", "192.0.2.1")
    told.renew(NOW + HOUR)
    assert told.is_new("a", "192.0.2.1")


def test_the_limit_is_for_each_period() -> None:
    told = Told(10, HOUR)
    for period in range(3):
        told.renew(NOW + period * HOUR)
        assert sum(told.is_new(str(n), "192.0.2.1") for n in range(100)) == 10
        assert told.full


def test_a_clock_that_was_set_back_does_not_silence_anything() -> None:
    told = Told(1, HOUR)
    told.renew(NOW)
    assert told.is_new("a", "192.0.2.1")
    told.renew(NOW - 1)
    assert told.is_new("b", "192.0.2.1")
