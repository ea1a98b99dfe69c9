"""The options of a job are the same for programs, for nodes and in the documentation."""

import re
from datetime import UTC, datetime

import pytest

from disque_trio.job_options import (
    OPTIONS,
    JobOptions,
    Moment,
    Whole,
    Words,
    check,
    encode,
    of_kind,
    stored,
)
from disque_trio.node.commands.add_options import AddOptions
from disque_trio.node.commands.table import build_table
from disque_trio.respserver.command import CommandError
from tests.support import ROOT

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
LIMITS = [
    (name, limit, beyond)
    for name, option in OPTIONS.items()
    for most in [option.most or 2**63 - 1]
    for limit, beyond in ((option.least, option.least - 1), (most, most + 1))
]


def value_of(name: str, limit: int) -> object:
    """Return the value of an option that is at a limit."""
    kind = OPTIONS[name]
    if isinstance(kind, Words):
        return b"x" * max(limit, 0)
    return limit / 1000 if isinstance(kind, Moment) else limit


def node_takes(name: str, value: object) -> bool:
    """Whether a node takes an option with this value."""
    word = OPTIONS[name].encode(value)
    args = [part if isinstance(part, bytes) else str(part).encode() for part in (name, word)]
    try:
        AddOptions([b"ADDJOB", b"q", b"", b"0", *args])
    except CommandError:
        return False
    return True


def program_takes(name: str, value: object) -> bool:
    """Whether the check of programs takes an option with this value."""
    try:
        check({name: value})  # type: ignore[misc]
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(("name", "limit", "beyond"), LIMITS)
def test_programs_and_nodes_have_the_same_limits(name: str, limit: int, beyond: int) -> None:
    for takes in (node_takes, program_takes):
        assert takes(name, value_of(name, limit))
        if beyond >= 0 or not isinstance(OPTIONS[name], Words):
            assert not takes(name, value_of(name, beyond))


def test_a_program_is_told_what_is_wrong() -> None:
    for options, text in (
        (JobOptions(priority=8), "priority must be from 0 to 7, not 8"),
        (JobOptions(ttl=0), "ttl must be at least 1, not 0"),
        (JobOptions(ttl=2**63), "ttl must be from 1 to 9223372036854775807, not 92233720"),
        (JobOptions(delay=float("inf")), "delay must be a number of seconds, not inf"),
        (JobOptions(delay=float("nan")), "delay must be a number of seconds, not nan"),
        (JobOptions(delay=10**400), "delay must be from 0 to 9223372036854775807, not 1000"),
        (JobOptions(at=True), "at must be a datetime or seconds since the epoch, not True"),
        (JobOptions(at=float("inf")), "at is not a time: cannot convert float infinity"),
        (JobOptions(group=""), "group must be from 1 to 1024 bytes long, not 0"),
        (JobOptions(retry=True), "retry must be an integer, not True"),
        (JobOptions(delay="soon"), "delay must be a number of seconds, not 'soon'"),  # type: ignore[typeddict-item]
        (JobOptions(at="noon"), "at must be a datetime or seconds since the epoch, not 'noon'"),  # type: ignore[typeddict-item]
        (JobOptions(at=datetime(2030, 1, 1)), "the time needs a time zone"),
    ):
        with pytest.raises(ValueError, match=re.escape(text)):
            check(options)


def test_none_is_the_same_as_leaving_an_option_out() -> None:
    nothing = JobOptions(dict.fromkeys(OPTIONS))  # type: ignore[misc]
    check(nothing)
    assert (encode(nothing), stored(nothing)) == ([], {})


def test_stored_options_are_sent_as_the_given_ones_would_be() -> None:
    given = JobOptions(priority=3, group=b"\xff", at=NOON)
    kept = stored(given)
    assert kept == {"priority": 3, "group": "\udcff", "at": NOON.timestamp()}
    assert encode(kept) == encode(given)  # type: ignore[arg-type]
    assert encode(given) == ["PRIORITY", 3, "GROUP", b"\xff", "AT", int(NOON.timestamp() * 1000)]


def test_all_are_in_the_syntax_and_the_description_of_addjob() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    syntax = build_table()[b"addjob"].syntax
    section = page.partition("### ADDJOB\n")[2].partition("\n### ")[0]
    for name, option in OPTIONS.items():
        assert f"[{name.upper()} {option.value}]" in syntax
        assert f"\n- `{name.upper()}`: " in section


def test_the_page_of_the_client_has_the_table_of_all_options() -> None:
    rows = [f"| `{name}` | {option.about} |\n" for name, option in OPTIONS.items()]
    page = (ROOT / "docs" / "client.md").read_text()
    assert "| option | |\n| --- | --- |\n" + "".join(rows) + "\n" in page


def test_the_page_of_the_outbox_names_all_options() -> None:
    page = (ROOT / "packages" / "integrations" / "docs" / "outbox.md").read_text()
    names = re.search(r"The options are (.*?),\n", page, re.DOTALL)
    assert names is not None
    assert re.findall(r"`(\w+)`", names[1]) == list(OPTIONS)


def test_numbers_and_texts_can_be_told_apart() -> None:
    assert "priority" in of_kind(Whole)
    assert of_kind(Words)[:1] == ["group"]
