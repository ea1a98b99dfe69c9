"""Which texts are valid host names."""

import pytest

from disque_trio.process.addresses import is_host_name

LONG = ".".join(["a" * 63] * 3 + ["b" * 61])  # 253 characters


@pytest.mark.parametrize(
    "name",
    [
        "localhost", "a", "A-1.example.org", "node_2.default.svc.cluster.local", "example.org.",
        "1.2.3.x4", "3com", "xn--p1ai", "4.0xg", LONG, LONG + ".",
    ],
)  # fmt: skip
def test_host_names_are_recognized(name: str) -> None:
    assert is_host_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", ".a", "a..b", "-a", "a-", "a.-b", "a" * 64, "b" + LONG, "x" * 300, "a b",
        "a\0", "a\n", "é", "a%lo", "1", "127.1", "1.2.3", "10.0.0.256", "0x7f", "0x7f.0x1", "0X",
        "1.2.3.4.", "::g", "[a]", "a:1", "a/b", "\u0661",
    ],
)  # fmt: skip
def test_anything_else_is_not_a_host_name(name: str) -> None:
    assert not is_host_name(name)
