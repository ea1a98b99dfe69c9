"""The command ``pressure`` over TLS, a socket, a URL, as a user, in a cluster and behind
sentinels."""

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from disque_pressure.arguments import parse
from disque_pressure.urls import Url
from packages.pressure.tests.support.pressure_helpers import Spot, settled
from packages.pressure.tests.support.pressure_processes import Redis, pressure
from tests.support.harness import Wire, free_port
from tests.support.redis_server import RedisServer


@pytest.fixture
def server(spot: Spot) -> Iterator[Redis]:
    wire = Wire(socket.create_connection(("127.0.0.1", spot.port)))
    yield Redis(spot.port, spot.prefix, wire)
    wire.close()


def fails(server: Redis, *arguments: str) -> str:
    """Return the error of a command that fails, which must be one line."""
    status, output, error = pressure(server, *arguments)
    assert (status, output) == (1, b"")
    assert error.startswith("pressure: ")
    assert error.count("\n") == 1
    return error


def works(server: Redis, *way: str, name: str = "q") -> None:
    """Check that every kind of command reaches the same Redis."""
    assert pressure(server, "create", name, *way) == (0, b"", "")
    assert pressure(server, "put", name, *way, "--close", data=b"1\n2\n") == (0, b"", "")
    assert pressure(server, "tail", name, *way) == (0, b"1\n2\n", "")
    assert pressure(server, "list", *way) == (0, f"{name}\t2\t-\tclosed\n".encode(), "")
    assert pressure(server, *way, "get", name) == (0, b"1\n2\n", "")
    assert pressure(server, "delete", name, *way) == (0, b"", "")


# TLS


class Tls(NamedTuple):
    """A Redis that only accepts TLS, the certificate of the authority, and one for clients."""

    port: int
    authority: str
    other: str
    cert: str
    key: str


def certify(directory: Path, name: str, *, by: str | None = None, host: str = "127.0.0.1") -> None:
    """Make a key and a certificate, signed by that of ``by`` or self-signed."""
    files = {ending: str(directory / f"{name}.{ending}") for ending in ("key", "csr", "crt")}
    subject = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{host}"]
    new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    new += ["-nodes", "-keyout", files["key"], *subject]
    if by is None:
        commands = [[*new, "-x509", "-days", "2", "-out", files["crt"]]]
    else:
        sign = ["openssl", "x509", "-req", "-in", files["csr"], "-out", files["crt"], "-days", "2"]
        sign += ["-CA", str(directory / f"{by}.crt"), "-CAkey", str(directory / f"{by}.key")]
        sign += ["-CAcreateserial", "-copy_extensions", "copyall"]
        commands = [[*new, "-out", files["csr"]], sign]
    for command in commands:
        subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    directory = tmp_path_factory.mktemp("tls")
    certify(directory, "authority")
    certify(directory, "other")
    certify(directory, "server", by="authority")
    certify(directory, "client", by="authority")
    port = free_port()
    options = ["--tls-port", str(port), "--tls-auth-clients", "yes"]
    for option, name in (
        ("--tls-cert-file", "server.crt"),
        ("--tls-key-file", "server.key"),
        ("--tls-ca-cert-file", "authority.crt"),
    ):
        options += [option, str(directory / name)]
    running = RedisServer(directory, *options)
    running.start()  # also with a plain port, to see that it runs
    names = ("authority.crt", "other.crt", "client.crt", "client.key")
    yield Tls(port, *(str(directory / name) for name in names))
    running.stop()


def test_tls_with_certificates_on_both_sides(server: Redis, tls: Tls) -> None:
    ours = ("--cert", tls.cert, "--key", tls.key)
    works(server, "--port", str(tls.port), "--tls", "--cacert", tls.authority, *ours)
    url = f"rediss://127.0.0.1:{tls.port}"
    works(server, "--url", url, "--cacert", tls.authority, *ours)
    works(server, "--port", str(tls.port), "--tls", "--insecure", *ours)


def test_an_untrusted_certificate_is_an_error(server: Redis, tls: Tls) -> None:
    way = ("--port", str(tls.port), "--tls", "--cert", tls.cert, "--key", tls.key)
    assert "certificate verify failed" in fails(server, "length", "q", *way)
    assert "certificate verify failed" in fails(server, "length", "q", *way, "--cacert", tls.other)
    named = fails(server, "list", *way, "--cacert", tls.authority, "--server", "localhost")
    assert "not valid for 'localhost'" in named


def test_without_a_client_certificate_the_server_refuses(server: Redis, tls: Tls) -> None:
    way = ("--port", str(tls.port), "--tls", "--cacert", tls.authority)
    assert "queue 'q'" in fails(server, "length", "q", *way)
    # A client without TLS gets an error about the reply, or the connection is closed.
    assert "queue 'q'" in fails(server, "length", "q", "--port", str(tls.port))


@pytest.mark.parametrize("option", ["--cacert", "--cert"])
@pytest.mark.parametrize("content", [None, b"", b"rubbish"])
def test_an_invalid_certificate_file_is_named(
    server: Redis, tmp_path: Path, option: str, content: bytes | None
) -> None:
    file = tmp_path / "file.pem"
    if content is not None:
        file.write_bytes(content)
    assert str(file) in fails(server, "length", "q", "--tls", option, str(file))


# Users, sockets, URLs


@pytest.fixture
def guarded(own_redis: RedisServer) -> Iterator[Redis]:
    """A Redis for one test, with a user who may use some keys; also on a socket."""
    path = own_redis.directory / "redis.sock"
    own_redis.stop()
    own_redis.options = (*own_redis.options, "--unixsocket", str(path))
    own_redis.start()
    wire = Wire(socket.create_connection(("127.0.0.1", own_redis.port)))
    wire("ACL", "SETUSER", "worker", "on", ">se:cr@et", "~p:*", "+@all")
    wire("ACL", "SETUSER", "default", "off")
    yield Redis(own_redis.port, "p", wire)
    wire.close()


def test_a_user_with_a_password(guarded: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "queue 'q'" in fails(guarded, "length", "q")
    monkeypatch.setenv("REDISCLI_AUTH", "se:cr@et")
    works(guarded, "--user", "worker")
    assert "queue 'q'" in fails(guarded, "length", "q", "--user", "nobody")
    refused = fails(guarded, "create", "q", "--user", "worker", "--prefix", "other")
    assert "permission" in refused.lower()


def test_a_url_contains_all_options(guarded: Redis, own_redis: RedisServer) -> None:
    works(guarded, "--url", f"redis://worker:se%3Acr%40et@127.0.0.1:{own_redis.port}/3")
    path = own_redis.directory / "redis.sock"
    works(guarded, "--url", f"unix://worker:se%3Acr%40et@{path}?db=2")


def test_a_socket_instead_of_a_port(
    guarded: Redis, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDISCLI_AUTH", "se:cr@et")
    path = own_redis.directory / "redis.sock"
    works(guarded, "--user", "worker", "--socket", str(path), "--db", "2")
    assert "nosuch" in fails(guarded, "length", "q", "--socket", str(path.parent / "nosuch"))


def test_the_parts_of_a_url() -> None:
    assert Url.parse("redis://") == Url(False, None, None, None, None, None, None)
    assert Url.parse("rediss://h:1/2") == Url(True, None, "h", 1, 2, None, None)
    assert Url.parse("redis://:p@[::1]") == Url(False, None, "::1", None, None, None, "p")
    assert Url.parse("redis://u%2f:p%40@h?db=3") == Url(False, None, "h", None, 3, "u/", "p@")
    assert Url.parse("unix:///a%20b?db=0") == Url(False, "/a b", None, None, 0, None, None)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host:1",
        "http://host",
        "redis://host:x",
        "redis://host:70000",
        "redis://host/x",
        "redis://host/1/2",
        "redis://host?timeout=1",
        "redis://host/1#2",
        "redis://[",
        "unix://",
        "unix://host/path",
        "unix:///path?db=-1",
    ],
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|database"):
        Url.parse(url)


# Clusters and sentinels


def test_list_covers_a_whole_cluster(nodes: list[RedisServer]) -> None:
    trio.run(settled, nodes)
    server = Redis(nodes[0].port, "{p}", None)  # type: ignore[arg-type]
    works(server, "--cluster")
    names = [f"{{{n}}}" for n in range(12)]
    for name in names:
        assert pressure(server, "create", name, "--prefix", "p", "--bound", "3")[0] == 0
    expected = "".join(f"{name}\t0\t3\topen\n" for name in sorted(names))
    listed = pressure(server, "list", "--prefix", "p", "--cluster")
    assert listed == (0, expected.encode(), "")
    assert "braces" in fails(server, "create", "q", "--prefix", "p", "--cluster")


def test_sentinels_tell_where_redis_is(
    own_redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "sentinel"
    directory.mkdir()
    sentinel = RedisServer(directory, "--sentinel")
    sentinel.config = directory / "sentinel.conf"
    sentinel.config.write_text(f"sentinel monitor main 127.0.0.1 {own_redis.port} 1\n")
    sentinel.start()
    server = Redis(1, "p", None)  # type: ignore[arg-type]
    try:
        places = f"127.0.0.1:1,127.0.0.1:{sentinel.port}"
        works(server, "--sentinel", places, "--service", "main")
        error = fails(server, "length", "q", "--sentinel", places, "--service", "other")
        assert "no sentinel knows 'other'" in error
        error = fails(server, "list", "--sentinel", "127.0.0.1:1", "--service", "main")
        assert "127.0.0.1:1" in error
        wire = Wire(socket.create_connection(("127.0.0.1", own_redis.port)))
        wire("CONFIG", "SET", "requirepass", "secret")
        wire.close()
        monkeypatch.setenv("REDISCLI_AUTH", "secret")
        works(server, "--sentinel", places, "--service", "main", "--db", "1")
    finally:
        sentinel.stop()


@pytest.mark.parametrize(
    "line",
    [
        "list --sentinel localhost:1",
        "list --service main",
        "list --sentinel localhost --service main",
        "list --sentinel :1 --service main",
        "list --sentinel a:1,,b:2 --service main",
        "list --sentinel a:1 --service main --port 1",
        "list --sentinel a:1 --service main --cluster",
        "list --sentinel a:1 --service main --socket /s",
        "list --sentinel-user u",
        "list --sni n",
        "list --socket /s --server h",
        "list --socket /s --url redis://",
        "list --socket /s --tls",
        "list --socket /s --cluster",
        "list --url http://h",
        "list --url redis:// --db 1",
        "list --url redis:// --user u",
        "list --url unix:///s --tls",
        "list --cluster --db 1",
        "list --cacert f",
        "list --insecure",
        "list --cert f",
        "list --url redis://h --insecure",
        "list --tls --key f",
    ],
)
def test_conflicting_options_end_with_status_2(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(line.split())
    assert ended.value.code == 2
    [said] = capsys.readouterr().err.splitlines()
    assert said.endswith("--help)")
