"""Questions about sockets and addresses."""

import socket

import pytest

from disque_trio.process.sockets import is_own_address


@pytest.mark.parametrize("ip", ["127.0.0.1", "127.1.2.3"])
def test_an_address_of_this_machine_is_its_own(ip: str) -> None:
    with socket.socket() as sock:
        sock.bind((ip, 0))
    assert is_own_address(ip)


# Reserved for documentation: no machine has them.
@pytest.mark.parametrize("ip", ["198.51.100.7", "203.0.113.9", "2001:db8::9", "", "no address"])
def test_addresses_of_other_machines_are_not_its_own(ip: str) -> None:
    assert not is_own_address(ip)
