"""The options on the command line."""

import pytest

from disque_trio.cli.format import Output
from disque_trio.cli.options import UsageError, parse_options


def test_options_end_at_the_command_whose_arguments_may_look_like_options() -> None:
    options = parse_options(["-p", "7712", "-h", "::1", "qpeek", "q", "-5", "--raw"], {})
    assert (options.host, options.port, options.output) == ("::1", 7712, None)
    assert options.command == [b"qpeek", b"q", b"-5", b"--raw"]
    assert options.where == "[::1]:7712"


def test_arguments_keep_their_bytes() -> None:
    assert parse_options(["echo", "\udcff\udc00"[:1]], {}).command == [b"echo", b"\xff"]


def test_a_negative_count_is_a_value_and_no_option() -> None:
    options = parse_options(["-r", "-1", "-i", "0.5", "ping"], {})
    assert (options.repeat, options.interval) == (-1, 0.5)


@pytest.mark.parametrize(
    ("environment", "arguments", "password"),
    [
        ({}, [], None),
        ({"REDISCLI_AUTH": "r"}, [], "r"),
        ({"REDISCLI_AUTH": "r", "DISQUECLI_AUTH": "d"}, [], "d"),
        ({"DISQUECLI_AUTH": "d"}, ["-a", "a"], "a"),
    ],
)
def test_the_password_comes_from_the_option_or_the_environment(
    environment: dict[str, str], arguments: list[str], password: str | None
) -> None:
    assert parse_options(arguments, environment).password == password


def test_json_means_resp3_unless_resp2_is_asked_for() -> None:
    assert parse_options(["--json"], {}).resp3
    assert not parse_options(["--json", "-2"], {}).resp3
    assert parse_options(["-3"], {}).resp3
    assert parse_options(["--csv"], {}).output is Output.CSV


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p"], "needs a value"),
        (["-p", "x"], "a whole number"),
        (["-p", "0"], "1 to 65535"),
        (["-i", "x"], "needs a period"),
        (["-i", "-1"], "needs a period"),
        (["--nonsense"], "unknown option --nonsense"),
    ],
)
def test_a_mistake_is_named(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_options(arguments, {})


def test_tls_has_the_options_of_redis_cli() -> None:
    line = "--tls --sni n --cacert a --cacertdir d --cert c --key k --insecure --user u ping"
    options = parse_options(line.split(), {})
    assert (options.tls, options.insecure, options.sni, options.user) == (True, True, "n", "u")
    assert (options.cacert, options.cacertdir, options.cert, options.key) == ("a", "d", "c", "k")
    assert options.command == [b"ping"]


def test_a_url_says_it_all() -> None:
    options = parse_options(["-u", "disques://u:p@h:1?ssl_ca_certs=f&ssl_check_hostname=no"], {})
    assert (options.host, options.port, options.user, options.password) == ("h", 1, "u", "p")
    assert (options.tls, options.cacert, options.check_hostname) == (True, "f", False)
    options = parse_options(["-u", "disque://unix:/s"], {"DISQUECLI_AUTH": "p"})
    assert (options.socket, options.tls, options.password) == ("/s", False, "p")


@pytest.mark.parametrize(
    "line", ["--cacert f", "--insecure", "--tls -s /s", "-u redis://:secret@h", "--user"]
)
def test_options_that_conflict_with_tls_are_reported(line: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_options(line.split(), {})
    assert "secret" not in str(error.value)


def test_all_nodes_and_the_name_in_a_url_are_known() -> None:
    url = "disque://a:1,b:2?client_name=me"
    options = parse_options(["--top", "-u", url], {})
    assert (options.top, options.nodes, options.client_name) == (True, ("a:1", "b:2"), "me")
    assert parse_options(["-u", url, "-p", "3"], {}).nodes == ()
