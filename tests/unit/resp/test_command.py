"""How Python values become the arguments of commands on the wire."""

import pytest

from disque_trio.resp.command import encode_command


def test_arguments_are_sent_as_bytes_text_and_numbers() -> None:
    encoded = encode_command(["X", b"\x00\r\n", "é", 12, memoryview(b"mv"), bytearray(b"ba")])
    assert encoded == (
        b"*6\r\n$1\r\nX\r\n$3\r\n\x00\r\n\r\n$2\r\n\xc3\xa9\r\n$2\r\n12\r\n$2\r\nmv\r\n$2\r\nba\r\n"
    )


@pytest.mark.parametrize("bad", [None, 1.5, True, ["x"]])
def test_other_arguments_are_refused(bad: object) -> None:
    with pytest.raises(TypeError):
        encode_command(["X", bad])  # type: ignore[list-item]


def test_a_command_needs_a_name() -> None:
    with pytest.raises(ValueError, match="name"):
        encode_command([])
