"""Loading files in both syntaxes and the command line; errors name their place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from disque_trio.config import (
    TABLE,
    Config,
    ConfigError,
    ConfigErrors,
    check_settings_file,
    load_settings,
    load_settings_text,
    parse_arguments,
)

Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file into the current directory; return its relative name."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, text: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return name

    return write


def errors_of(path: str) -> list[str]:
    return [str(error) for error in check_settings_file(Config, path)]


def test_without_a_file_there_are_defaults() -> None:
    config = load_settings(Config, None)
    assert config.file is None
    assert (config.port, config.maxmemory, config.bind) == (7711, 1024**3, ())


def test_conf_syntax_is_read(write: Write) -> None:
    path = write(
        "disque.conf",
        "# comment\n\n  PORT 7712\r\n"
        "bind 127.0.0.1 ::1\n"
        'requirepass "a b\\x21"\n'
        "logfile 'my log'\n"
        "client-output-buffer-limit normal 1gb 256mb 60\n"
        'rename-command DEBUG ""\n'
        "rename-command CONFIG Hidden\n"
        "hz 20\nhz 30\n",
    )
    config = load_settings(Config, path)
    assert config.file == str(Path(path).absolute())
    assert config.port == 7712
    assert config.bind == ("127.0.0.1", "::1")
    assert config.requirepass == "a b!"
    assert config.logfile == "my log"
    assert config.client_output_buffer_limit == (1024**3, 256 * 1024**2, 60)
    assert config.rename_commands == {"debug": "", "config": "Hidden"}
    assert config.hz == 30


@pytest.mark.parametrize(
    "limit",
    [
        "normal 1gb 256mb 60",
        "'normal 1gb 256mb 60'",
        "{normal: {hard: 1gb, soft: 256mb, seconds: 60}}",
        "\n  normal:\n    seconds: 60\n    hard: 1gb\n    soft: 256mb",
    ],
)
def test_yaml_output_limits_are_text_or_mappings(write: Write, limit: str) -> None:
    config = load_settings(Config, write("a.yaml", f"client-output-buffer-limit: {limit}\n"))
    assert config.client_output_buffer_limit == (1024**3, 256 * 1024**2, 60)


def test_yaml_is_read(write: Write) -> None:
    path = write(
        "disque.yml",
        "port: 7712 # comment\n"
        "bind: [127.0.0.1, '::1']\n"
        "requirepass: 0123\n"
        "protected-mode: false\n"
        "aof-load-truncated: off\n"
        "tcp-keepalive: true\n"
        "unixsocketperm: 0700\n"
        "appendfsync: no\n"
        'logfile: ""\n'
        "maxmemory: 100MB\n"
        "rename-command:\n  DEBUG: ''\n  CONFIG: Hidden\n",
    )
    config = load_settings(Config, path)
    assert config.port == 7712
    assert config.bind == ("127.0.0.1", "::1")
    assert config.requirepass == "0123"
    assert config.protected_mode is False
    assert config.aof_load_truncated is False
    assert config.tcp_keepalive == 300
    assert config.unixsocketperm == 0o700
    assert config.appendfsync == "no"
    assert config.maxmemory == 100 * 1024**2
    assert config.rename_commands == {"debug": "", "config": "Hidden"}


@pytest.mark.parametrize(
    ("text", "bind"),
    [
        ("bind: []", ()),
        ("bind: ''", ()),
        ("bind: 1.2.3.4", ("1.2.3.4",)),
        ("bind: 1.2.3.4 ::1", ("1.2.3.4", "::1")),
        ("bind:\n- 1.2.3.4\n- ::1", ("1.2.3.4", "::1")),
    ],
)
def test_yaml_lists_have_several_forms(write: Write, text: str, bind: tuple[str, ...]) -> None:
    assert load_settings(Config, write("a.yaml", text)).bind == bind


@pytest.mark.parametrize("name", ["empty.conf", "empty.yaml"])
@pytest.mark.parametrize("text", ["", "# only a comment\n"])
def test_an_empty_file_means_defaults(write: Write, name: str, text: str) -> None:
    assert load_settings(Config, write(name, text)) == Config()


def test_conf_keeps_bytes_that_are_not_utf8(write: Write) -> None:
    config = load_settings(Config, write("a.conf", "requirepass caf\udce9\n"))
    assert config.config_get([b"requirepass"]) == [(b"requirepass", b"caf\xe9")]


def test_conf_includes_are_read_in_place_and_relative_to_the_file(write: Write) -> None:
    write("sub/inner.conf", "timeout 7\nhz 22\nmaxclients 5\n")
    write("sub/middle.yaml", "include: inner.conf\nmaxclients: 6\n")
    config = load_settings(Config, write("a.conf", "timeout 1\ninclude sub/middle.yaml\nhz 33\n"))
    assert (config.timeout, config.hz, config.maxclients) == (7, 33, 6)


def test_yaml_includes_are_read_first_wherever_they_stand(write: Write) -> None:
    write("one.conf", "hz 11\ntimeout 1\n")
    write("two.conf", "timeout 2\n")
    config = load_settings(Config, write("a.yaml", "hz: 33\ninclude: [one.conf, two.conf]\n"))
    assert (config.timeout, config.hz) == (2, 33)


def test_a_file_that_includes_itself_is_refused(write: Write) -> None:
    write("b.conf", "include a.conf\n")
    assert errors_of(write("a.conf", "hz 5\ninclude b.conf\n")) == [
        "b.conf:1: include: a.conf includes itself"
    ]


def test_a_missing_include_is_reported_where_it_is_asked_for(write: Write) -> None:
    assert errors_of(write("a.yaml", "hz: 5\ninclude: nothing.conf\n")) == [
        "a.yaml:2: include: cannot read nothing.conf: No such file or directory"
    ]


def test_an_error_in_an_include_names_that_file(write: Write) -> None:
    write("b.conf", "\nhz abc\n")
    assert errors_of(write("a.conf", "include b.conf\n")) == [
        "b.conf:2: hz: expected an integer from 1 to 500, got 'abc'"
    ]


def test_a_missing_file_is_an_error() -> None:
    assert errors_of("/no/such/disque.conf") == ["/no/such/disque.conf: No such file or directory"]


def test_a_directory_instead_of_a_file_is_an_error(tmp_path: Path) -> None:
    assert errors_of(str(tmp_path)) == [f"{tmp_path}: Is a directory"]


def test_all_bad_settings_of_a_conf_file_are_reported_in_order(write: Write) -> None:
    path = write(
        "bad.conf",
        "hz abc\n"
        "# fine\n"
        "prot 7711\n"
        "bind 'a\n"
        "appendonly maybe\n"
        "maxmemory\n"
        "timeout 5 6\n"
        "loglevel notice # or more\n"
        "zzzzzz 1\n",
    )
    assert errors_of(path) == [
        "bad.conf:1: hz: expected an integer from 1 to 500, got 'abc'",
        "bad.conf:3: prot: unknown parameter, did you mean port?",
        'bad.conf:4: unbalanced quotes in "bind \'a"',
        "bad.conf:5: appendonly: expected yes or no, got 'maybe'",
        "bad.conf:6: maxmemory: expected a value after it",
        "bad.conf:7: timeout: expected an integer of at least 0, got '5 6'",
        "bad.conf:8: loglevel: expected one of debug, verbose, notice, warning, "
        "got 'notice # or more' (a comment needs a line of its own)",
        "bad.conf:9: zzzzzz: unknown parameter",
    ]


def test_all_bad_settings_of_a_yaml_file_are_reported_in_order(write: Write) -> None:
    path = write(
        "bad.yaml",
        "hz: abc\n"
        "prot: 7711\n"
        "port: 1\n"
        "port: 2\n"
        "maxmemory: [1gb]\n"
        "timeout: {a: b}\n"
        "requirepass:\n"
        "bind:\n  - 1.2.3.4\n  - [x]\n"
        "aof-enqueue-jobs-once: 2\n"
        "client-output-buffer-limit: {normal: {hard: 1, soft: 2}}\n"
        "rename-command: DEBUG\n"
        "? [a]\n: b\n"
        "protected-mode: 'true'\n",
    )
    assert errors_of(path) == [
        "bad.yaml:1: hz: expected an integer from 1 to 500, got 'abc'",
        "bad.yaml:2: prot: unknown parameter, did you mean port?",
        "bad.yaml:4: port: given twice, first on line 3",
        "bad.yaml:5: maxmemory: expected a size such as 100mb or 1gb, got a list",
        "bad.yaml:6: timeout: expected an integer of at least 0, got a mapping",
        "bad.yaml:7: requirepass: expected text of at most 512 bytes, "
        'got nothing (write "" for an empty text)',
        "bad.yaml:9: bind: expected up to 16 addresses, got a list",
        "bad.yaml:11: aof-enqueue-jobs-once: expected yes or no, got '2'",
        "bad.yaml:12: client-output-buffer-limit: expected normal HARD SOFT SECONDS, "
        "such as normal 1gb 256mb 60, got something else than hard, soft and seconds, each once",
        "bad.yaml:13: rename-command: expected a mapping of OLD: NEW, or OLD: \"\", got 'DEBUG'",
        "bad.yaml:14: expected the name of a setting",
        "bad.yaml:16: protected-mode: expected yes or no, got 'true'",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("hz: 1\nbind: [a\n", 3),
        ("- a\n- b\n", 1),
        ("just text\n", 1),
        ("hz: &ten 10\ntimeout: *ten\n", 1),
        ("hz: 10\nrequirepass: |\n  secret\n", 2),
        ("hz: 10\n---\nhz: 11\n", 2),
        ("hz: 10\nlogfile: \x01\n", 2),
        ("hz: 10\nlogfile: \udce9\n", 2),
        ("hz: !!python/object:os.system x\n\tport: 1", 2),
    ],
)
def test_yaml_that_cannot_be_a_configuration_is_refused_with_its_line(
    write: Write, text: str, line: int
) -> None:
    (error,) = check_settings_file(Config, write("bad.yaml", text))
    assert (error.file, error.line) == ("bad.yaml", line)


@pytest.fixture
def usual_depth() -> Iterator[None]:
    """Calls may be nested as deeply as usual, also if another test has imported what allows
    more."""
    allowed = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)
    yield
    sys.setrecursionlimit(allowed)


@pytest.mark.usefixtures("usual_depth")
def test_yaml_that_is_nested_too_deeply_is_refused(write: Write) -> None:
    (error,) = check_settings_file(Config, write("bad.yaml", f"bind: {'[' * 5000}{']' * 5000}\n"))
    assert str(error) == "bad.yaml: not valid YAML: nested too deeply"


def test_an_error_tells_file_line_setting_and_what_was_expected(write: Write) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(Config, write("bad.conf", "\nhz abc\n"))
    error = caught.value
    assert (error.file, error.line, error.setting) == ("bad.conf", 2, "hz")
    assert error.expected == "an integer from 1 to 500"
    assert isinstance(error, ConfigErrors)
    assert len(error.errors) == 1


def test_a_good_file_has_no_errors(write: Write) -> None:
    assert check_settings_file(Config, write("good.conf", "hz 5\n")) == []


def test_text_from_standard_input_is_conf_syntax() -> None:
    config = load_settings_text(Config, "hz 20\ntimeout 3\n", [("timeout", "4")])
    assert (config.hz, config.timeout, config.file) == (20, 4, None)
    with pytest.raises(ConfigError) as caught:
        load_settings_text(Config, "hz x\n")
    assert str(caught.value).startswith("standard input:1: hz: ")


def test_the_command_line_overrides_the_file(write: Write) -> None:
    path = write("a.conf", "port 1\nbind 9.9.9.9\nrequirepass secret\nrename-command DEBUG x\n")
    argv = ["--PORT", "7712", "--bind", "127.0.0.1", "::1", "--maxmemory", "100mb"]
    argv += ["--requirepass", "", "--slowlog-log-slower-than", "-1"]
    argv += ["--rename-command", "CONFIG", "", "--client-output-buffer-limit", "normal 1 2 3"]
    config = load_settings(Config, path, parse_arguments(TABLE, argv))
    assert config.port == 7712
    assert config.bind == ("127.0.0.1", "::1")
    assert config.maxmemory == 100 * 1024**2
    assert config.requirepass == ""
    assert config.slowlog_log_slower_than == -1
    assert config.rename_commands == {"debug": "x", "config": ""}
    assert config.client_output_buffer_limit == (1, 2, 3)


def test_a_value_may_follow_an_equals_sign() -> None:
    argv = ["--Port=7712", "--bind=127.0.0.1", "::1", "--requirepass=", "--dir=a=b"]
    assert parse_arguments(TABLE, argv) == [
        ("port", "7712"), ("bind", "127.0.0.1 ::1"), ("requirepass", ""), ("dir", "a=b"),
    ]  # fmt: skip


def test_the_command_line_can_empty_a_list(write: Write) -> None:
    config = load_settings(
        Config, write("a.conf", "bind 9.9.9.9\n"), parse_arguments(TABLE, ["--bind", ""])
    )
    assert config.bind == ()


def test_no_overrides_are_no_overrides() -> None:
    assert parse_arguments(TABLE, []) == []


def test_bad_arguments_are_reported_together() -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse_arguments(TABLE, ["7712", "--prot", "1", "--hz", "1", "2", "--timeout"])
    assert [str(error) for error in caught.value.errors] == [
        "command line: expected --name value, got '7712'",
        "command line: prot: unknown parameter, did you mean port?",
        "command line: hz: expected an integer from 1 to 500, got '1 2'",
        "command line: timeout: expected a value after it",
    ]


def test_bad_values_on_the_command_line_name_it(write: Write) -> None:
    with pytest.raises(ConfigErrors) as caught:
        load_settings(
            Config,
            write("a.conf", "hz abc\n"),
            [("timeout", "never"), ("include", "x"), ("appendonly", "maybe"), ("nothing", "1")],
        )
    assert [str(error) for error in caught.value.errors] == [
        "a.conf:1: hz: expected an integer from 1 to 500, got 'abc'",
        "command line: timeout: expected an integer of at least 0, got 'never'",
        "command line: include: only a file can have it",
        "command line: appendonly: expected yes or no, got 'maybe'",
        "command line: nothing: unknown parameter",
    ]
