"""What command lines have in common."""

from argparse import ArgumentTypeError

import pytest

from disque_trio.process import options
from disque_trio.process.options import Parser
from disque_trio.version import VERSION


def parser() -> Parser:
    made = Parser(prog="shop", epilog="two\nlines")
    options.add_version_option(made)
    options.add_nodes_option(made.add_argument)
    options.add_login_options(made.add_argument)
    options.add_log_options(made.add_argument)
    options.add_metrics_option(made.add_argument)
    options.add_otel_option(made.add_argument)
    commands = made.add_subparsers(dest="command")
    commands.add_parser("open").add_argument("--until", type=options.period())
    return made


def mistake(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the only line that is printed for a wrong command line."""
    with pytest.raises(SystemExit) as end:
        parser().parse_args(words)
    assert end.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


def test_shared_options_have_defaults() -> None:
    given = parser().parse_args([])
    assert given.nodes == ["127.0.0.1:7711"]
    assert (given.user, given.tls, given.cacert, given.insecure) == (None, False, None, False)
    assert (given.log_level, given.log_format) == ("notice", "auto")
    assert (given.metrics, given.otel) == (None, False)


def test_help_shows_defaults_and_keeps_the_lines_of_the_epilog() -> None:
    text = parser().format_help()
    words = " ".join(text.split())
    for shown in ("(default: 127.0.0.1:7711)", "(default: notice)", "(default host: 127.0.0.1)"):
        assert shown in words
    assert text.endswith("\n\ntwo\nlines\n")


def test_the_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parser().parse_args(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"shop {VERSION}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--nods", "a"],
            "shop: no such argument: --nods; did you mean --nodes? (see shop --help)",
        ),
        (["--xyzzy"], "shop: no such argument: --xyzzy (see shop --help)"),
        (["open", "now"], "shop open: no such argument: now (see shop open --help)"),
        (
            ["open", "--untill=5"],
            "shop open: no such argument: --untill; did you mean --until? (see shop open --help)",
        ),
        (
            ["open", "--until", "x"],
            "shop open: argument --until: expected a period such as 30, 0.5, 90s, 15m, 1h30m or 7d,"
            " not 'x' (see shop open --help)",
        ),
    ],
)
def test_a_mistake_is_one_line_that_suggests_what_was_meant(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mistake(capsys, *words) == said


def test_whole_numbers_have_limits() -> None:
    assert options.whole()("0") == 0
    assert (options.count("1"), options.port("65535")) == (1, 65_535)
    for text in ("", "x", "-1", "+1", "1.0", "1_0", "\u0661", "9" * 5000):
        with pytest.raises(ArgumentTypeError, match="expected a number"):
            options.whole()(text)
    with pytest.raises(ArgumentTypeError, match="of at least 1, not '0'"):
        options.count("0")
    with pytest.raises(ArgumentTypeError, match="expected at most 65535, not '65536'"):
        options.port("65536")


def test_periods_have_limits() -> None:
    assert options.period()("0.5") == 0.5
    assert options.whole_period()("1h") == 3600
    assert options.whole_period()("1.0") == 1
    for text, said in (
        ("599", "at least 600 s"),
        ("36501d", "at most"),
        ("x", "such as"),
    ):
        with pytest.raises(ArgumentTypeError, match=said):
            options.period(600)(text)
    with pytest.raises(ArgumentTypeError, match=r"in whole seconds, not '0\.5'"):
        options.whole_period()("0.5")


def test_sizes_and_rates_are_not_0() -> None:
    assert (options.size("1k"), options.rate("30/m")) == (1000, 0.5)
    with pytest.raises(ArgumentTypeError, match="expected a size"):
        options.size("0")
    with pytest.raises(ArgumentTypeError, match="expected a rate"):
        options.rate("0")


def test_a_place_to_listen_on_needs_a_port_only() -> None:
    assert options.place("9100") == ("127.0.0.1", 9100)
    assert options.address("[::1]", port=1) == ("::1", 1)
    with pytest.raises(ArgumentTypeError, match=r"^::1:9100: write \[::1:9100\] for the host, or"):
        options.place("::1:9100")


def test_a_command_may_have_options_of_its_own_and_values_that_begin_with_dashes() -> None:
    assert parser().parse_args(["--user=--x", "open", "--until", "5"]).until == 5
    assert parser().parse_args(["--log-l", "debug"]).log_level == "debug"
