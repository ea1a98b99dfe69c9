"""Values are read strictly, and what is shown or written reads back as the same value."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disque_trio.config import TABLE, Config, ConfigError
from disque_trio.config.errors import BadValue
from disque_trio.config.load import load_settings_text
from disque_trio.config.words import join_words, split_words, to_text


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("maxmemory", "0", 0),
        ("maxmemory", "5b", 5),
        ("maxmemory", "1k", 1000),
        ("maxmemory", "1KB", 1024),
        ("maxmemory", "2m", 2_000_000),
        ("maxmemory", "2Mb", 2 * 1024**2),
        ("maxmemory", "3g", 3 * 10**9),
        ("maxmemory", "3gb", 3 * 1024**3),
        ("tcp-keepalive", "yes", 300),
        ("tcp-keepalive", "NO", 0),
        ("tcp-keepalive", "60", 60),
        ("slowlog-log-slower-than", "-1", -1),
        ("hz", "500", 500),
        ("port", "0", 0),
        ("unixsocketperm", "770", 0o770),
        ("unixsocketperm", "0700", 0o700),
        ("loglevel", "WARNING", "warning"),
        ("syslog-facility", "LOCAL7", "local7"),
        ("appendonly", "no", False),
        ("protected-mode", "No", False),
        ("bind", "", ()),
        ("bind", "127.0.0.1 ::1", ("127.0.0.1", "::1")),
        ("client-output-buffer-limit", "NORMAL 1kb 10 60", (1024, 10, 60)),
        ("requirepass", "two words", "two words"),
        ("tls-ciphers", "", ""),
        ("tls-ciphersuites", "", ""),
        ("tls-ciphers", "ECDHE+AESGCM", "ECDHE+AESGCM"),
        ("rename-command", 'DEBUG ""', {"debug": ""}),
    ],
)
def test_a_good_value_is_read(name: str, text: str, value: object) -> None:
    assert TABLE[name].parse_text(text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("maxmemory", ""),
        ("maxmemory", "-1"),
        ("maxmemory", "1tb"),
        ("maxmemory", "1 gb"),
        ("maxmemory", "9999999999gb"),
        ("maxmemory", "010"),
        ("proto-max-bulk-len", "1gb"),
        ("tcp-keepalive", "-5"),
        ("slowlog-log-slower-than", "-2"),
        ("slowlog-max-len", "-1"),
        ("hz", "0"),
        ("hz", "501"),
        ("hz", " 10"),
        ("hz", "+10"),
        ("hz", "1_0"),
        ("hz", "٣"),
        ("port", "55536"),
        ("cluster-announce-port", "55536"),
        ("cluster-announce-ip", "localhost"),
        ("cluster-announce-ip", "fe80::1%eth0"),
        ("cluster-announce-ip", "127.1"),
        ("unixsocketperm", "800"),
        ("unixsocketperm", "1777"),
        ("loglevel", "info"),
        ("protected-mode", "true"),
        ("bind", "a b c d e f g h i j k l m n o p q"),
        ("bind", "'not closed"),
        ("bind", "127.0.0.1:7711"),
        ("bind", "[::1]"),
        ("metrics-bind", "[::1]:9100"),
        ("client-output-buffer-limit", "normal 0 0"),
        ("client-output-buffer-limit", "slave 0 0 0"),
        ("client-output-buffer-limit", "normal 0 0 -1"),
        ("requirepass", "x" * 513),
        ("logfile", "a\0b"),
        ("appendfilename", "a/b"),
        ("appendfilename", ""),
        ("dir", "/no/such/directory"),
        ("dir", "/dev/null"),
        ("dir", ""),
        ("rename-command", "DEBUG"),
        ("appendonly", "maybe"),
        ("tls-ciphers", "<b>"),
        ("tls-ciphers", "a\0b"),
        ("tls-ciphersuites", "<b>"),
        ("tls-ciphersuites", "a\0b"),
        ("aof-enqueue-jobs-once", "2"),
    ],
)
def test_a_bad_value_is_refused(name: str, text: str) -> None:
    with pytest.raises(BadValue):
        TABLE[name].parse_text(text)


@settings(deadline=None)
@given(
    st.sampled_from(["maxmemory", "tcp-keepalive", "timeout", "auto-aof-rewrite-min-size"]),
    st.integers(0, 2**31 - 1),
)
def test_numbers_that_are_shown_or_written_read_back(name: str, value: int) -> None:
    param = TABLE[name]
    assert param.parse_text(param.type.show(value)) == value
    assert param.parse(param.type.words(value)) == value


@settings(deadline=None)
@given(st.lists(st.binary().map(to_text) | st.text(st.characters(exclude_categories=["Cs"]))))
def test_words_that_are_joined_split_back(words: list[str]) -> None:
    assert split_words(join_words(words)) == words


def test_bytes_that_are_not_utf8_survive_quoting() -> None:
    (word,) = split_words(r'"\xff\xc3\xa9\n\"\\"')
    assert word == '\udcffé\n"\\'
    assert split_words(join_words([word])) == [word]


@pytest.mark.parametrize("line", ['"a', "'a", '"a"b', "a 'b'c", '"a\\'])
def test_unbalanced_quotes_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match="unbalanced"):
        split_words(line)


def test_single_quotes_only_know_the_escaped_quote() -> None:
    assert split_words(r"'it\'s' '\n'") == ["it's", r"\n"]


def test_the_attributes_that_types_know_are_those_of_the_table() -> None:
    hints = get_type_hints(Config)
    declared = {name for name in vars(Config)["__annotations__"] if name != "table"}
    assert declared == {param.attribute for param in Config.stored()}
    config = Config()
    for name in declared:
        value: Any = getattr(config, name)
        kind = hints[name]
        assert type(value) is getattr(kind, "__origin__", kind), name


def test_every_default_is_a_value_that_reads_back() -> None:
    for param in Config.stored():
        value = param.default_value()
        if not param.type.adds_up:
            assert param.parse(param.type.words(value)) == value, param.name
            assert param.parse_text(param.type.show(value)) == value, param.name


@pytest.mark.parametrize("text", ["short", "x" * 15, "x" * 513, "a b c", "x" * 16 + " short"])
def test_an_invalid_secret_is_refused_and_not_repeated(text: str) -> None:
    config = Config()
    with pytest.raises(ConfigError) as refused:
        config.config_set([(b"cluster-secret", text.encode())])
    assert text not in str(refused.value)
    with pytest.raises(ConfigError) as refused:
        load_settings_text(Config, f"cluster-secret {text}")
    assert text not in str(refused.value)
    assert config.cluster_secret == ()


def test_a_secret_is_kept_and_not_shown() -> None:
    config = Config()
    new, old = "n" * 16, "o" * 16
    config.config_set([(b"cluster-secret", f"{new} {old}".encode())])
    assert config.cluster_secret == (new, old)
    assert config.config_get([b"*secret"]) == [(b"cluster-secret", b"(redacted)")]
    assert new not in repr(config)
    config.config_set([(b"cluster-secret", b"")])
    assert config.config_get([b"*secret"]) == [(b"cluster-secret", b"")]
