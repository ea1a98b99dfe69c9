"""Addresses: hosts, ports and brackets, and what may be read in two ways."""

from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.notation.addresses import (
    Address,
    AmbiguousError,
    format_address,
    host_of,
    read_address,
    read_node,
)

V6 = st.integers(0, 2**128 - 1).map(lambda number: str(IPv6Address(number)))
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,20}(\.[a-z][a-z0-9]{0,9})?", fullmatch=True)
V4 = st.ip_addresses(v=4).map(str)
PORTS = st.integers(1, 65_535)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("h:1", "h", 1),
        ("10.0.0.2:7712", "10.0.0.2", 7712),
        ("queue.example", "queue.example", 7711),
        ("[::1]:65535", "::1", 65_535),
        ("[::1]", "::1", 7711),
        ("::1", "::1", 7711),
        ("::", "::", 7711),
        ("2001:db8::a", "2001:db8::a", 7711),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.1", 7711),
        ("fe80::1%eth0", "fe80::1%eth0", 7711),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", 1),
        ("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8", 7711),
    ],
)
def test_every_form_of_an_address_is_read(text: str, host: str, port: int) -> None:
    assert read_address(text, 7711) == Address(host, port)
    assert read_address(text, 7711, "127.0.0.1") == Address(host, port)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("::1:7711", "::1:7711: write [::1:7711] for the host, or [::1]:7711 for host and port"),
        (
            "2001:d::1:2",
            "2001:d::1:2: write [2001:d::1:2] for the host, or [2001:d::1]:2 for host and port",
        ),
        ("1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7:8:9: write [1:2:3:4:5:6:7:8]:9 for host and port"),
        ("fe80::1%lo:7", "fe80::1%lo:7: write [fe80::1%lo]:7 for host and port"),
    ],
)
def test_an_address_whose_end_may_be_a_port_is_an_error_that_shows_what_to_write(
    text: str, said: str
) -> None:
    for host in (None, "127.0.0.1"):
        with pytest.raises(AmbiguousError) as wrong:
            read_address(text, 7711, host)
        assert str(wrong.value) == said


@pytest.mark.parametrize("text", ["9100", ":9100"])
def test_a_port_alone_needs_a_default_host(text: str) -> None:
    assert read_address(text, host="127.0.0.1") == Address("127.0.0.1", 9100)
    assert read_address(text, host="") == Address("", 9100)
    with pytest.raises(ValueError, match="host"):
        read_address(text, 7711)


@pytest.mark.parametrize("text", ["h", "[::1]", "::1", "9100x"])
def test_a_host_alone_needs_a_default_port(text: str) -> None:
    with pytest.raises(ValueError, match="no port in the address"):
        read_address(text, host="127.0.0.1")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            ":",
            "h:",
            "h:x",
            "h:-1",
            "h:0",
            "h:65536",
            "h:007711",
            f"h:{'9' * 5000}",
            "h:\u0661",
        ),
        *(
            "[",
            "[]",
            "[::1",
            "[::1]x",
            "[::1]:",
            "[h]:1",
            "[1.2.3.4]:1",
            "::1]",
            "::1]:1",
            "[::1]:1:2",
        ),
        *("a:b:1", "::1:99999", "::x", "a b:1", "a/b", "u:p@h:1", "h\n:1", "9100:1", "\u0661:1"),
        *(f"{'h' * 64}:1", "h..h:1", ".h:1", "..:1", "\u00e9..:1", "\u00e9" * 60 + ":1"),
    ],
)
def test_anything_else_is_no_address(text: str) -> None:
    for host in (None, "127.0.0.1"):
        with pytest.raises(ValueError, match=r"address|port|expected"):
            read_address(text, 7711, host)


def test_port_0_may_be_allowed() -> None:
    assert read_address("h:0", lowest=0) == Address("h", 0)
    assert read_address("0", host="", lowest=0) == Address("", 0)


def test_a_node_may_have_a_unix_socket() -> None:
    assert read_node("unix:/run/a:1", 7711) == Address(path="/run/a:1")
    assert read_node("[::1]", 7711) == Address("::1", 7711)
    with pytest.raises(ValueError, match="no path"):
        read_node("unix:", 7711)


@given(st.one_of(V6, V4, NAMES), PORTS)
def test_an_address_is_read_as_it_was_written(host: str, port: int) -> None:
    text = format_address(host, port)
    assert read_address(text) == Address(host, port)
    assert str(Address(host, port)) == text
    assert host_of(text) == host


@given(V6)
def test_a_bare_address_is_a_host_or_an_error(host: str) -> None:
    try:
        assert read_address(host, 7711) == Address(host, 7711)
    except AmbiguousError:
        start, _, end = host.rpartition(":")
        assert read_address(f"[{start}]:{end}").port == int(end)


@given(st.text())
def test_no_text_is_a_surprise(text: str) -> None:
    try:
        found = read_address(text, 7711)
    except ValueError:
        return
    assert read_address(format_address(found.host, found.port)) == found
