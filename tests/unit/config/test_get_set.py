"""CONFIG GET and CONFIG SET."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from disque_bananaq.settings import TABLE as BANANAQ
from disque_trio.config import TABLE, Config, ConfigError

DISQUE_GET = """
requirepass unixsocket logfile pidfile maxmemory maxmemory-samples timeout
auto-aof-rewrite-percentage auto-aof-rewrite-min-size slowlog-log-slower-than
latency-monitor-threshold slowlog-max-len port tcp-backlog databases maxclients watchdog-period hz
cluster-node-timeout tcp-keepalive no-appendfsync-on-rewrite daemonize activerehashing
aof-rewrite-incremental-fsync aof-load-truncated aof-enqueue-jobs-once maxmemory-policy loglevel
appendfsync syslog-facility appendonly dir client-output-buffer-limit unixsocketperm bind
"""
OURS_GET = """
proto-max-bulk-len client-query-buffer-limit proto-inline-max-size protected-mode log-format
max-commands-per-turn cluster-announce-ip cluster-announce-port cluster-announce-tls-port
cluster-link-sendbuf-limit cluster-secret cluster-identity cluster-encrypt maxclients-per-ip
tls-cluster tls-port event-log
event-log-dir
event-log-segment-size event-log-segment-seconds event-log-compress event-log-keep-hours
event-log-max-size processes cluster-failure-domain cluster-extensions enable-protected-configs
enable-debug-command maxmemory-clients maxmemory-bus queue-max-idle-time result-ttl
aclfile acllog-max-len auth-failures-per-minute
metrics-port metrics-bind metrics-max-queues requeue-at-start aof-scrub-hours default-replicate
paging paging-above
"""
TLS_SET = """
tls-cert-file tls-key-file tls-key-file-pass tls-ca-cert-file tls-ca-cert-dir tls-auth-clients
tls-protocols tls-ciphers tls-ciphersuites tls-prefer-server-ciphers tls-session-caching
"""
DISQUE_SET = """
requirepass maxclients appendonly dir client-output-buffer-limit aof-rewrite-incremental-fsync
aof-load-truncated activerehashing tcp-keepalive aof-enqueue-jobs-once maxmemory-samples timeout
auto-aof-rewrite-percentage auto-aof-rewrite-min-size slowlog-log-slower-than slowlog-max-len
latency-monitor-threshold cluster-node-timeout hz watchdog-period maxmemory loglevel
maxmemory-policy appendfsync
"""


def get(config: Config, *patterns: str) -> dict[str, str]:
    pairs = config.config_get([pattern.encode() for pattern in patterns])
    assert len(dict(pairs)) == len(pairs)
    return {name.decode(): text.decode() for name, text in pairs}


def test_get_knows_the_names_of_disque_and_our_own() -> None:
    assert sorted(get(Config(), "*")) == sorted((DISQUE_GET + OURS_GET + TLS_SET).split())


def test_everything_disque_can_set_can_be_set() -> None:
    settable = {param.name for param in TABLE.values() if param.settable}
    assert settable - set((OURS_GET + TLS_SET).split()) == set(DISQUE_SET.split())


def test_get_shows_the_defaults_of_disque() -> None:
    shown = get(Config(), "*")
    assert shown["maxmemory"] == "1073741824"
    assert shown["auto-aof-rewrite-min-size"] == "67108864"
    assert shown["client-output-buffer-limit"] == "normal 0 0 0"
    assert shown["tcp-keepalive"] == "no"
    assert shown["unixsocketperm"] == "0"
    assert shown["bind"] == ""
    assert shown["dir"] == str(Path.cwd())
    assert shown["pidfile"] == "/var/run/disque.pid"


def test_get_gives_a_name_once_although_several_globs_match() -> None:
    assert get(Config(), "HZ", "h*", "*z") == {"hz": "10"}


def test_get_does_not_show_what_is_for_files_only() -> None:
    assert get(Config(), "include", "rename-command", "appendfilename", "syslog-ident") == {}


def test_get_without_a_match_is_empty() -> None:
    assert get(Config(), "nothing*") == {}


def test_set_changes_values_and_tells_which_changed() -> None:
    config = Config()
    changed = config.config_set([(b"HZ", b"20"), (b"maxmemory", b"1gb"), (b"timeout", b"5")])
    assert changed == ["hz", "timeout"]
    assert (config.hz, config.timeout) == (20, 5)


def test_set_keepalive_is_shown_as_yes_no_or_seconds() -> None:
    config = Config()
    for text, seconds, shown in (("yes", 300, "yes"), ("60", 60, "60"), ("0", 0, "no")):
        config.config_set([(b"tcp-keepalive", text.encode())])
        assert config.tcp_keepalive == seconds
        assert get(config, "tcp-keepalive") == {"tcp-keepalive": shown}


def test_set_output_limit_is_typed() -> None:
    config = Config()
    config.config_set([(b"client-output-buffer-limit", b"normal 1mb 10kb 60")])
    limit = config.client_output_buffer_limit
    assert (limit.hard, limit.soft, limit.seconds) == (1024**2, 10240, 60)


def test_set_a_password_of_any_bytes_is_given_back() -> None:
    config = Config()
    config.config_set([(b"requirepass", b"\xff\xc3\xa9 x")])
    assert config.config_get([b"requirepass"]) == [(b"requirepass", b"\xff\xc3\xa9 x")]


def test_set_dir_makes_the_path_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    config = Config()
    config.config_set([(b"dir", b"data")])
    assert config.dir == str(tmp_path / "data")


def test_what_has_no_effect_without_another_setting_needs_that() -> None:
    config = Config()
    for other in ("appendonly", "maxmemory"):
        ready = config.with_values({"appendonly": True, "maxmemory": 1, other: 0})
        with pytest.raises(ConfigError, match=f"it has no effect while {other} is "):
            ready.check_needs({"paging": True})
        ready.check_needs({"paging": True, other: 1})
        ready.check_needs({"paging": False})


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("port", "1", "ERR Unsupported CONFIG parameter: port"),
        ("Prot", "1", "ERR Unsupported CONFIG parameter: Prot"),
        (
            "Enable-Debug-Command",
            "no",
            "ERR CONFIG SET failed (possibly related to argument 'Enable-Debug-Command') - "
            "can't set immutable config",
        ),
        (
            "enable-protected-configs",
            "nonsense",
            "ERR CONFIG SET failed (possibly related to argument 'enable-protected-configs') - "
            "can't set immutable config",
        ),
        ("include", "x", "ERR Unsupported CONFIG parameter: include"),
        ("hz", "abc", "ERR Invalid argument 'abc' for CONFIG SET 'hz'"),
        ("maxmemory", "", "ERR Invalid argument '' for CONFIG SET 'maxmemory'"),
        ("loglevel", "loud", "ERR Invalid argument 'loud' for CONFIG SET 'loglevel'"),
        (
            "appendonly",
            "maybe",
            "ERR Invalid argument 'maybe' for CONFIG SET 'appendonly'",
        ),
        (
            "dir",
            "/no/such",
            "ERR Invalid argument '/no/such' for CONFIG SET 'dir' - No such file or directory",
        ),
    ],
)
def test_set_refuses_with_the_texts_of_disque(name: str, value: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config().config_set([(name.encode(), value.encode())])
    assert str(caught.value) == text
    assert caught.value.setting == name


@pytest.mark.parametrize("name", ["DIR", "event-log-dir"])
def test_an_untrusted_client_cannot_set_where_files_are_written(name: str) -> None:
    pairs = [(b"hz", b"20"), (name.encode(), b"/tmp")]
    with pytest.raises(ConfigError) as caught:
        Config().read_pairs(pairs, trusted=False)
    assert str(caught.value) == (
        f"ERR CONFIG SET failed (possibly related to argument '{name}') - can't set protected "
        "config"
    )
    assert Config().read_pairs(pairs) == {"hz": 20, name.lower(): "/tmp"}


def test_everything_that_names_a_path_and_can_be_set_is_protected() -> None:
    named = {
        param.name
        for table in (TABLE, BANANAQ)
        for param in table.values()
        if param.settable and re.search("path|file name|directory", param.type.expected)
    }
    assert named == {
        *["dir", "event-log-dir"],
        *["tls-cert-file", "tls-key-file", "tls-ca-cert-file", "tls-ca-cert-dir"],
    }
    assert named | {"tls-key-file-pass"} == {
        param.name for param in TABLE.values() if param.protected
    }


def test_set_applies_nothing_when_one_pair_is_bad() -> None:
    config = Config()
    with pytest.raises(ConfigError):
        config.config_set([(b"hz", b"20"), (b"timeout", b"never")])
    assert config == Config()


def test_set_refuses_a_name_given_twice() -> None:
    with pytest.raises(ConfigError, match="twice"):
        Config().config_set([(b"hz", b"20"), (b"HZ", b"30")])


def test_appendonly_no_is_accepted() -> None:
    assert Config().config_set([(b"appendonly", b"no")]) == []


def test_configurations_with_equal_values_are_equal() -> None:
    other = Config({"hz": 20})
    assert Config() != other
    other.config_set([(b"hz", b"10")])
    assert Config() == other
    assert Config() != "something else"
