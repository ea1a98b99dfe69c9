"""CONFIG GET, SET and REWRITE of a running node, with both kinds of files."""

from pathlib import Path

import pytest

from tests.support.harness import LiveNode, NodeFactory, Wire
from tests.support.live_helpers import pairs, run_server

CONF = """\
# What the operator wrote.
maxclients 50

hz 20
  # indented, and a setting that stays as it is:
slowlog-max-len   64
requirepass "se cret"
"""

YAML = """\
# What the operator wrote.
maxclients: 50

hz: 20   # behind a value
slowlog-max-len: 64
requirepass: "se cret"
"""


def get(wire: Wire, *patterns: str) -> dict[str, object]:
    return pairs(wire("CONFIG", "GET", *patterns))


def test_get_accepts_globs_and_returns_each_parameter_once(talk: Wire) -> None:
    everything = get(talk, "*")
    assert len(everything) > 30
    assert get(talk, "h?") == {"hz": b"10"}
    assert set(get(talk, "slowlog-*", "*-max-len")) == {
        "slowlog-log-slower-than",
        "slowlog-max-len",
        "acllog-max-len",
    }
    assert get(talk, "HZ") == {"hz": b"10"}
    assert get(talk, "nonsense", "h[") == {}


def test_the_defaults_are_those_of_disque(talk: Wire) -> None:
    expected = {
        "requirepass": b"",
        "unixsocket": b"",
        "logfile": b"",
        "pidfile": b"/var/run/disque.pid",
        "maxmemory": b"1073741824",
        "timeout": b"0",
        "auto-aof-rewrite-percentage": b"100",
        "auto-aof-rewrite-min-size": b"67108864",
        "slowlog-log-slower-than": b"10000",
        "latency-monitor-threshold": b"0",
        "slowlog-max-len": b"128",
        "tcp-backlog": b"511",
        "databases": b"16",
        "maxclients": b"10000",
        "hz": b"10",
        "cluster-node-timeout": b"15000",
        "tcp-keepalive": b"no",
        "daemonize": b"no",
        "maxmemory-policy": b"acks",
        "loglevel": b"notice",
        "appendfsync": b"everysec",
        "appendonly": b"no",
        "client-output-buffer-limit": b"normal 0 0 0",
    }
    assert get(talk, *expected) == expected


def test_set_changes_what_get_shows(node: LiveNode) -> None:
    wire = node.wire()
    for name, given, shown in [
        ("maxmemory", "10MB", b"10485760"),
        ("maxmemory", "1k", b"1000"),
        ("maxmemory", "0", b"0"),
        ("timeout", "30", b"30"),
        ("tcp-keepalive", "yes", b"yes"),
        ("maxmemory-policy", "noeviction", b"noeviction"),
        ("client-output-buffer-limit", "normal 10mb 1mb 60", b"normal 10485760 1048576 60"),
        ("slowlog-log-slower-than", "-1", b"-1"),
        ("hz", "500", b"500"),
        ("LogLevel", "verbose", b"verbose"),
        ("maxclients", "77", b"77"),
        ("queue-max-idle-time", "86400", b"86400"),
    ]:
        assert wire("CONFIG", "SET", name, given) == b"OK"
        assert get(wire, name) == {name.lower(): shown}
        assert wire("PING") == b"PONG"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxmemory", "-1"),
        ("maxmemory", "1x"),
        ("maxmemory", "9" * 30 + "gb"),
        ("timeout", "x"),
        ("timeout", ""),
        ("hz", "0"),
        ("hz", "501"),
        ("queue-max-idle-time", "0"),
        ("queue-max-idle-time", "-1"),
        ("queue-max-idle-time", "1.5"),
        ("maxclients", "0"),
        ("maxmemory-policy", "everything"),
        ("loglevel", "loud"),
        ("dir", "/nonexistent"),
        ("client-output-buffer-limit", "normal 1"),
        ("client-output-buffer-limit", "nonsense 1 1 1"),
        ("slowlog-log-slower-than", "-2"),
        ("appendfsync", "sometimes"),
        ("tcp-keepalive", "maybe"),
        ("requirepass", "x" * 513),
        ("proto-max-bulk-len", "1gb"),
        ("appendonly", "maybe"),
    ],
)
def test_a_bad_value_is_refused_and_changes_nothing(talk: Wire, name: str, value: str) -> None:
    before = get(talk, "*")
    problem = talk.error("CONFIG", "SET", name, value)
    shown = "(redacted)" if name == "requirepass" else value
    assert problem.startswith(f"ERR Invalid argument '{shown}' for CONFIG SET '{name}'")
    assert talk.error("CONFIG", "SET", "watchdog-period", "77", name, value) == problem
    assert get(talk, "*") == before


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("GET", "ERR Wrong number of arguments for CONFIG get"),
        ("SET", "ERR Wrong number of arguments for CONFIG set"),
        ("SET hz", "ERR Wrong number of arguments for CONFIG set"),
        ("SET hz 10 timeout", "ERR Wrong number of arguments for CONFIG set"),
        ("REWRITE x", "ERR Wrong number of arguments for CONFIG rewrite"),
        ("RESETSTAT x", "ERR Wrong number of arguments for CONFIG resetstat"),
        ("NONSENSE", "ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE"),
        ("SET nonsense 1", "ERR Unsupported CONFIG parameter: nonsense"),
        ("SET port 1", "ERR Unsupported CONFIG parameter: port"),
        ("REWRITE", "ERR The server is running without a config file"),
    ],
)
def test_a_malformed_config_command_gets_its_error(talk: Wire, words: str, problem: str) -> None:
    assert talk.error("CONFIG", *words.split()) == problem


def test_the_working_directory_can_change(node: LiveNode, tmp_path: Path) -> None:
    wire = node.wire()
    place = tmp_path / "else where"
    place.mkdir()
    assert wire("CONFIG", "SET", "dir", str(place)) == b"OK"
    assert get(wire, "dir") == {"dir": str(place).encode()}
    assert Path(f"/proc/{node.process.pid}/cwd").readlink() == place


@pytest.mark.parametrize(("name", "text"), [("disque.conf", CONF), ("disque.yaml", YAML)])
def test_rewrite_keeps_the_file_and_a_restart_finds_the_changes(
    disque_server: NodeFactory, tmp_path: Path, name: str, text: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    path.chmod(0o640)
    node = disque_server(name)
    wire = node.wire()
    wire("AUTH", "se cret")
    changes = {
        "hz": b"44",
        "timeout": b"600",
        "queue-max-idle-time": b"7",
        "client-output-buffer-limit": b"normal 10485760 0 0",
        "requirepass": b'new "quoted" \\ # p\xc3\xa4ss',
    }
    for setting, value in changes.items():
        assert wire("CONFIG", "SET", setting, value) == b"OK"
    assert wire("CONFIG", "REWRITE") == b"OK"
    assert run_server("--check-config", str(path)).returncode == 0
    written = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in tmp_path.iterdir() if name in entry.name] == [name]
    for line in text.splitlines():
        if "#" in line and "hz" not in line:
            assert line in written.splitlines()
    order = [written.index(word) for word in ("maxclients", "hz", "slowlog-max-len")]
    assert order == sorted(order)
    assert "\ntimeout" in written
    assert wire("CONFIG", "REWRITE") == b"OK"
    assert path.read_text() == written  # a second time changes nothing
    assert node.stop() == 0

    again = disque_server(name).wire()
    assert again.error("AUTH", "se cret") == "ERR invalid password"
    assert again("AUTH", changes["requirepass"]) == b"OK"
    assert get(again, *changes, "maxclients") == {**changes, "maxclients": b"50"}


def test_a_file_that_cannot_be_written_is_an_error_and_stays(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    place = tmp_path / "etc"
    place.mkdir()
    (place / "disque.conf").write_text(CONF)
    node = disque_server(str(place / "disque.conf"))
    wire = node.wire()
    wire("AUTH", "se cret")
    (place / "disque.conf").unlink()
    place.rmdir()
    assert wire.error("CONFIG", "REWRITE").startswith("ERR ")
    assert wire("PING") == b"PONG"


def test_a_renamed_command_answers_to_its_new_name_only(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    (tmp_path / "disque.conf").write_text(
        'rename-command DEBUG ""\nrename-command CONFIG "hidden"\n'
    )
    wire = disque_server("disque.conf").wire()
    assert wire.error("DEBUG", "FLUSHALL") == "ERR unknown command 'DEBUG'"
    assert wire.error("CONFIG", "GET", "hz") == "ERR unknown command 'CONFIG'"
    assert wire("Hidden", "GET", "hz") == [b"hz", b"10"]
