"""Addresses of this machine."""

import socket

import pytest


def other_address() -> str:
    """An address of this machine that is not a loopback one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing, only finds the route
        except OSError:
            pytest.skip("this machine has no address but 127.0.0.1")
        address = probe.getsockname()[0]
    assert isinstance(address, str)
    if address.startswith("127."):
        pytest.skip("this machine has no address but 127.0.0.1")
    return address
