"""Connections are counted by their origin."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.process.addresses import network
from disque_trio.respserver.origins import Origins

SAME = [
    ("192.0.2.1", "::ffff:192.0.2.1"),
    ("2001:db8::1", "2001:db8::2"),
    ("2001:db8:0:1::", "2001:DB8:0:1:ffff:ffff:ffff:ffff"),
    ("fe80::1%lo", "FE80::1%lo"),
    ("::1", "::1"),
]
DIFFERENT = [
    ("192.0.2.1", "192.0.2.2"),
    ("127.0.0.1", "::1"),
    ("2001:db8::1", "2001:db8:0:1::1"),
    ("fe80::1%lo", "fe80::2%lo"),
    ("192.0.2.1", "::192.0.2.1"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_addresses_of_one_host_are_one(one: str, other: str) -> None:
    assert network(one) == network(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_addresses_of_different_hosts_are_not(one: str, other: str) -> None:
    assert network(one) != network(other)


IPS = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "fe80::1%lo", ""]


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(IPS))))
def test_the_counts_are_those_of_what_is_open(steps: list[tuple[int, str]]) -> None:
    origins, there = Origins(), dict[int, str]()
    for fd, ip in steps:
        if fd in there:
            origins.leave(fd)
            del there[fd]
        else:
            origins.enter(fd, ip)
            there[fd] = ip
        counts = Counter(network(ip) for ip in there.values() if ip)
        assert {ip: origins.count(ip) for ip in IPS if ip} == {
            ip: counts[network(ip)] for ip in IPS if ip
        }
        assert origins.count("") == 0
    for fd in there:
        origins.leave(fd)
        origins.leave(fd)
    assert len(origins) == 0
    assert not any(map(origins.count, IPS))
