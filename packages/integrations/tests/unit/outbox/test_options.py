"""The options of ``disque-outbox``."""

import pytest

from disque_integrations.outbox.options import add_options
from disque_trio.process.options import Parser

PARSER = Parser(prog="outbox")
add_options(PARSER)


def test_numbers_are_read() -> None:
    words = "--batch 7 --poll 0.5 --unique-for 10m --keep 60"
    options = PARSER.parse_args(words.split())
    assert (options.batch, options.poll) == (7, 0.5)
    assert (options.unique_for, options.keep) == (600.0, 60.0)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--batch", "abc"),
        ("--batch", "0"),
        ("--poll", "soon"),
        ("--poll", "0"),
        ("--keep", "inf"),
        ("--unique-for", "599"),
        ("--unique-for", "a day"),
    ],
)
def test_a_wrong_number_is_explained(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        PARSER.parse_args([option, value])
    assert end.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"outbox: argument {option}: expected ")
