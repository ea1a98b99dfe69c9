"""Options of bananaq: command line, environment and file, and CONFIG REWRITE."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from disque_bananaq.option_texts import example, usage
from disque_bananaq.options import Exit, parse, settings_or_exit
from disque_bananaq.settings import SECTIONS, TABLE, BananaSettings
from disque_trio.config import TABLE as NODE
from disque_trio.config import ConfigError, ConfigErrors, OutputBufferLimit, rewrite
from disque_trio.notation.addresses import Address
from tests.support import PYTHONPATH, ROOT


def settings(*argv: str, **environ: str) -> BananaSettings:
    return parse(argv, environ)


def errors(*argv: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        parse(argv, environ)
    return [str(error) for error in caught.value.errors]


def config(tmp_path: Path, text: str, name: str = "bananaq.conf") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_without_options_the_documented_defaults_hold() -> None:
    plain = settings()
    assert plain.listen_addr == Address("", 4777)
    assert plain.redis_addr == (Address("127.0.0.1", 6379),)
    assert (plain.redis_cluster, plain.redis_pool_size, plain.redis_db) == (False, 10, 0)
    assert (plain.bg_qadd_pool_size, plain.log_level, plain.store) == (128, "info", "embedded")
    assert (plain.appendonly, plain.appendfilename) == (True, "bananaq.aof")
    assert (plain.okq_compat, plain.okq_group, plain.okq_expire) == (True, "okq", 604800)
    assert (plain.redis_cluster, plain.redis_prefix, plain.file) == (False, "bananaq", None)
    assert plain.dir == str(Path.cwd())


def test_the_command_line_takes_precedence_over_the_environment_and_that_over_the_file(
    tmp_path: Path,
) -> None:
    file = config(tmp_path, "hz: 20\ntimeout: 20\nmaxclients: 20\n")
    given = settings(
        "--config", file, "--hz", "40", BANANAQ_HZ="30", BANANAQ_TIMEOUT="30", bananaq_TIMEOUT="25"
    )
    assert (given.hz, given.timeout, given.maxclients, given.slowlog_max_len) == (40, 30, 20, 128)
    assert given.file == file


@pytest.mark.parametrize("name", ["bananaq_LISTEN_ADDR", "BANANAQ_LISTEN_ADDR"])
def test_both_spellings_of_environment_names_are_read(name: str) -> None:
    assert settings(**{name: "127.0.0.1:5000"}).listen_addr == Address("127.0.0.1", 5000)


def test_the_upper_case_spelling_of_an_environment_name_wins(tmp_path: Path) -> None:
    assert settings(bananaq_HZ="11", BANANAQ_HZ="12").hz == 12
    assert settings(BANANAQ_HZ="12", bananaq_HZ="nonsense").hz == 12
    one, other = config(tmp_path, "hz: 21\n", "one"), config(tmp_path, "hz: 22\n", "other")
    assert settings(bananaq_CONFIG=one, BANANAQ_CONFIG=other).hz == 22
    assert settings("--config", one, BANANAQ_CONFIG=other).hz == 21
    assert settings(BANANAQ_CONFIG="").file is None


def test_environment_names_that_are_not_parameters_are_ignored() -> None:
    assert settings(BANANAQ_PORT="tcp://10.0.0.1:4777", BANANAQ_SERVICE_HOST="x") == settings()


def test_values_follow_an_equals_sign_or_are_the_next_word() -> None:
    given = settings("--requirepass=--secret=1", "--HZ=50", "--slowlog-log-slower-than", "-1")
    assert (given.requirepass, given.hz, given.slowlog_log_slower_than) == ("--secret=1", 50, -1)
    assert settings("--requirepass=").requirepass == ""
    assert settings("--hz", "20", "--hz=30").hz == 30


def test_a_switch_needs_no_value() -> None:
    given = settings("--redis-cluster", "--redis-addr=127.0.0.1:6380")
    assert given.redis_cluster
    assert given.store == "redis"
    assert given.redis_addr == (Address("127.0.0.1", 6380),)
    assert settings("--appendonly", "no", "--hz", "20").appendonly is False
    assert settings("--appendonly=false", BANANAQ_OKQ_COMPAT="off").values() == (
        settings("--appendonly", "no", "--okq-compat", "NO").values()
    )
    assert settings("--tcp-keepalive", "60").tcp_keepalive == 60
    assert settings("--tcp-keepalive").tcp_keepalive == 300
    assert errors("--redis-cluster", "maybe") == [
        "command line: expected --name value or --name=value, got 'maybe'"
    ]


def test_a_value_of_several_words_is_one_text_or_several_arguments() -> None:
    wanted = OutputBufferLimit(1024, 512, 3)
    several = ("--client-output-buffer-limit", "normal", "1kb", "512", "3")
    assert settings(*several, "--hz=20").client_output_buffer_limit == wanted
    one = "--client-output-buffer-limit=normal 1kb 512 3"
    assert settings(one).client_output_buffer_limit == wanted


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":4777", "", 4777),
        ("localhost:1", "localhost", 1),
        ("[::1]:65535", "::1", 65535),
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("", "", 0),
    ],
)
def test_addresses_to_listen_on(text: str, host: str, port: int) -> None:
    given = settings(f"--listen-addr={text}")
    assert given.listen_addr == Address(host, port)
    assert (given.bind, given.port) == ((host,) if host else (), port)
    assert given.config_get([b"listen-addr"]) == [(b"listen-addr", text.encode())]


@pytest.mark.parametrize(
    "text", ["::1:4777", "::1", "4777x", "a:-1", "a:65536", "a:x", "a b:1", ":", "[]"]
)
def test_invalid_listening_addresses(text: str) -> None:
    [error] = errors(f"--listen-addr={text}")
    assert error.startswith("command line: listen-addr: expected [HOST:]PORT")


def test_several_addresses_mean_a_cluster() -> None:
    given = settings("--redis-cluster", "--redis-addr", "a:1,b", "[::1]:3")
    assert given.redis_addr == (Address("a", 1), Address("b", 6379), Address("::1", 3))
    assert errors("--redis-addr", "a:1,b:2") == [
        "command line: redis-addr: only a cluster may have several"
    ]
    assert errors("--redis-cluster", BANANAQ_REDIS_DB="2") == [
        "environment BANANAQ_REDIS_DB: redis-db: a cluster has only database 0"
    ]
    for bad in (":6379", "a:1,,b:2", "", ","):
        assert errors("--redis-cluster", f"--redis-addr={bad}")


def test_a_key_prefix_does_not_change_the_slot() -> None:
    assert settings("--redis-prefix", "my:queues").redis_prefix == "my:queues"
    for bad in ("", "{x}", "a}"):
        assert len(errors(f"--redis-prefix={bad}")) == 1


def test_unused_redis_options_are_named() -> None:
    given = settings(
        "--store=embedded", "--redis-addr=a:1", "--redis-addr=b:1", BANANAQ_REDIS_DB="1"
    )
    assert given.warnings == [
        "redis-db has no effect without store redis",
        "redis-addr has no effect without store redis",
    ]
    assert settings("--redis-addr=a:1", "--store", "redis").warnings == []


def test_certificates_for_a_redis_without_tls_are_named(tmp_path: Path) -> None:
    (tmp_path / "banana.yaml").write_text("store: redis\nredis-tls-ca-cert-file: ca.pem\n")
    config = f"--config={tmp_path / 'banana.yaml'}"
    assert settings(config, "--redis-tls-cert-file=ours.pem").warnings == [
        "redis-tls-ca-cert-file has no effect without redis-tls yes",
        "redis-tls-cert-file has no effect without redis-tls yes",
    ]
    assert settings(config, "--redis-tls").warnings == []


def test_a_redis_address_selects_redis(tmp_path: Path) -> None:
    assert settings("--redis-addr=a:1").store == "redis"
    assert settings("--redis-cluster").store == "redis"
    assert settings("--redis-cluster=no").store == "embedded"
    assert settings(BANANAQ_REDIS_ADDR="a:1").store == "redis"
    assert settings("--redis-addr=a:1", BANANAQ_STORE="embedded").store == "redis"
    assert settings("--store=embedded", BANANAQ_REDIS_ADDR="a:1").store == "embedded"
    file = config(tmp_path, "store: embedded\nredis-addr: a:1\n")
    assert settings("--config", file).store == "embedded"
    assert settings("--config", file, "--redis-cluster", "--redis-addr=b:1").store == "redis"
    assert settings("--config", config(tmp_path, "redis-addr: a:1\n")).store == "redis"


def test_all_errors_are_reported_with_their_places(tmp_path: Path) -> None:
    file = config(tmp_path, "hz: 0\n\nlisten-add: :1\nokq-group: [a, b]\n")
    found = errors("--config", file, "--maxclients=many", "stray", "--timeot=1", BANANAQ_STORE="x")
    assert sorted(found) == sorted(
        [
            f"{file}:1: hz: expected an integer from 1 to 500, got '0'",
            f"{file}:3: listen-add: unknown parameter, did you mean listen-addr?",
            f"{file}:4: okq-group: expected the name of a group, got a list",
            "environment BANANAQ_STORE: store: expected one of embedded, redis, got 'x'",
            "command line: maxclients: expected an integer of at least 1, got 'many'",
            "command line: expected --name value or --name=value, got 'stray'",
            "command line: timeot: unknown parameter, did you mean timeout?",
        ]
    )


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--hz"], "command line: hz: expected a value after it"),
        (["--config"], "command line: config: expected a value after it"),
        (["--hz", "--store=redis"], "command line: hz: expected a value after it"),
        (["--"], "command line: --: unknown parameter"),
        (["--exampel"], "command line: exampel: unknown parameter"),
        (["-p", "1"], "command line: expected --name value or --name=value, got '-p'"),
    ],
)
def test_invalid_arguments(argv: list[str], expected: str) -> None:
    assert errors(*argv)[0] == expected


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    assert errors("--config", missing) == [f"{missing}: No such file or directory"]
    assert errors("--config", str(tmp_path)) == [f"{tmp_path}: Is a directory"]
    assert errors("--config=") == errors("--config", "") == [": Is a directory"]  # of no file
    assert settings(BANANAQ_CONFIG="").file is None
    (tmp_path / "latin").write_bytes(b"okq-group: \xff\n")
    assert errors("--config", str(tmp_path / "latin")) == [f"{tmp_path}/latin:1: not valid UTF-8"]
    assert len(errors("--config", "a\0b")) == 1


@pytest.mark.parametrize("name", ["bananaq.conf", "bananaq.yaml", "settings"])
def test_a_file_is_yaml_whatever_its_name(tmp_path: Path, name: str) -> None:
    text = "# mine\nlisten-addr: 127.0.0.1:5000  # here\nrequirepass: two words\nappendonly: false"
    given = settings("--config", config(tmp_path, text, name))
    assert given.listen_addr == Address("127.0.0.1", 5000)
    assert (given.requirepass, given.appendonly) == ("two words", False)


def test_paths_are_relative_to_the_start_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    given = settings("--config", Path(config(tmp_path, "dir: data\n")).name)
    assert given.dir == str(tmp_path / "data")
    assert given.file == str(tmp_path / "bananaq.conf")


def test_the_example_loads_to_the_defaults(tmp_path: Path) -> None:
    with pytest.raises(Exit) as wanted:
        settings("--example")
    given = settings("--config", config(tmp_path, wanted.value.text))
    assert given == settings()
    for name in TABLE:
        assert re.search(rf"^{name}: \S", wanted.value.text, re.MULTILINE), name
    assert max(map(len, wanted.value.text.splitlines())) <= 80


def test_the_shipped_file_is_the_example() -> None:
    shipped = ROOT / "config" / "bananaq.conf"
    assert shipped.read_text() == example(), "bananaq --example > config/bananaq.conf"


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_the_help_names_every_parameter(option: str) -> None:
    with pytest.raises(Exit) as wanted:
        settings("--hz", "20", option)
    assert wanted.value.text == usage()
    for name in (*TABLE, "config", "example", "version"):
        assert f"  --{name}" in usage(), name


def test_every_parameter_is_in_a_section_and_has_a_description_for_bananaq() -> None:
    for param in TABLE.values():
        assert param.section in SECTIONS, param.name
        assert param.help.endswith("."), param.name
        assert not re.search(r"\bjobs?\b|\b[Tt]he node\b|GETJOB|Disque", param.help), param.name
        if param.name in NODE:
            assert param.attribute == NODE[param.name].attribute
            assert param.type is NODE[param.name].type
    assert set(BananaSettings.__annotations__) - {"table"} == {
        param.attribute for param in TABLE.values()
    }


@pytest.mark.parametrize(
    ("argv", "status", "out", "err"),
    [
        (["--version"], 0, "bananaq of disque-trio", ""),
        (["--example"], 0, "listen-addr: :4777", ""),
        (["--hz=0", "--nosuch=1"], 2, "", "bananaq: command line: hz: expected an integer"),
    ],
)
def test_the_exit_status_tells_the_outcome(
    argv: list[str], status: int, out: str, err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        settings_or_exit(argv, {})
    assert end.value.code == status
    printed = capsys.readouterr()
    assert out in printed.out
    assert err in printed.err
    assert printed.err.count("\n") == (2 if err else 0)


def test_a_process_reads_its_own_arguments_and_environment(tmp_path: Path) -> None:
    program = "from disque_bananaq.options import settings_or_exit as s; print(s().hz, s().dir)"
    done = subprocess.run(
        [sys.executable, "-c", program, "--hz", "20"],
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "BANANAQ_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"20 {tmp_path}\n", "")


def test_log_levels_have_the_same_names_in_the_log() -> None:
    names = [
        settings("--log-level", level).loglevel for level in ("debug", "INFO", "warn", "fatal")
    ]
    assert names == ["debug", "notice", "warning", "warning"]


FILE = """\
# the file of a test
hz: 20  # often

# clients
maxclients: 50
listen-addr: ":5000"
"""


def test_rewrite_changes_what_was_set_and_keeps_the_rest(tmp_path: Path) -> None:
    running = settings("--config", config(tmp_path, FILE))
    assert running.config_set([(b"HZ", b"30"), (b"timeout", b"5")]) == ["hz", "timeout"]
    rewrite(running)
    text = (tmp_path / "bananaq.conf").read_text()
    generated = "# Generated by CONFIG REWRITE\ntimeout: 5\n"
    assert text == FILE.replace("hz: 20 ", "hz: 30 ") + generated
    assert settings("--config", str(tmp_path / "bananaq.conf")) == running


def test_rewrite_writes_no_option_that_overrides_the_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    file = config(tmp_path, FILE)
    running = settings(
        "--config", file, "--hz=40", "--dir", str(tmp_path / "data"), BANANAQ_REQUIREPASS="secret"
    )
    rewrite(running)
    assert Path(file).read_text() == FILE
    assert (running.hz, running.requirepass) == (40, "secret")


def test_rewrite_writes_an_option_that_was_set(tmp_path: Path) -> None:
    file = config(tmp_path, FILE)
    running = settings("--config", file, "--hz=40", BANANAQ_TIMEOUT="7")
    running.config_set([(b"hz", b"40"), (b"timeout", b"8")])
    rewrite(running)
    written = settings("--config", file)
    assert (written.hz, written.timeout) == (40, 8)


def test_a_set_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    file = config(tmp_path, FILE)
    running = settings("--config", file, "--hz=40")
    for pairs in ([(b"hz", b"50"), (b"timeout", b"x")], [(b"hz", b"50"), (b"store", b"redis")]):
        with pytest.raises(ConfigError):
            running.config_set(pairs)
    assert running.hz == 40
    rewrite(running)
    assert Path(file).read_text() == FILE


def test_rewrite_works_after_the_process_went_to_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    config(tmp_path, "dir: data\n")
    monkeypatch.chdir(tmp_path)
    running = settings("--config", "bananaq.conf")
    monkeypatch.chdir(running.dir)
    running.config_set([(b"hz", b"30")])
    rewrite(running)
    assert str(Path.cwd()) == running.dir
    text = (tmp_path / "bananaq.conf").read_text()
    assert text == "dir: data\n# Generated by CONFIG REWRITE\nhz: 30\n"


def test_rewrite_says_why_it_failed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ERR The server is running without a config file"):
        rewrite(settings())
    file = config(tmp_path, FILE)
    running = settings("--config", file)
    Path(file).write_text("hz: [\n")
    with pytest.raises(ConfigError) as problem:
        rewrite(running)
    assert str(problem.value).startswith(f"{file}:2: not valid YAML")
    assert Path(file).read_text() == "hz: [\n"


def test_rewrite_recreates_a_removed_file(tmp_path: Path) -> None:
    file = config(tmp_path, FILE)
    running = settings("--config", file)
    Path(file).unlink()
    rewrite(running)
    assert settings("--config", file) == running


def test_every_setting_that_can_be_set_survives_a_rewrite(tmp_path: Path) -> None:
    values = {
        "client-output-buffer-limit": b"normal 2kb 1kb 3",
        "requirepass": b'a "b": #c',
        "log-level": b"warn",
        "appendfsync": b"always",
        "tcp-keepalive": b"yes",
        "tls-auth-clients": b"no",
        "tls-protocols": b"TLSv1.3",
        "tls-ciphers": b"ECDHE-RSA-AES128-GCM-SHA256",
        "tls-ciphersuites": b"",  # Python before 3.15 cannot choose any
    }
    file = config(tmp_path, example())
    running = settings("--config", file)
    for name, param in TABLE.items():
        if param.settable:
            other = b"no" if running.get(name) is True else b"yes"
            plain = other if param.type.boolean else b"7" if name == "hz" else b"4097"
            running.config_set([(name.encode(), values.get(name, plain))])
    rewrite(running)
    assert settings("--config", file) == running
    assert running != settings()


def test_a_password_is_not_shown_by_accident() -> None:
    given = settings("--requirepass=hush", "--redis-password=hush")
    assert "hush" not in repr(given)
