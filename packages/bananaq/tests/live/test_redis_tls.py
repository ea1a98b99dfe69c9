"""Events in a Redis that is reached over TLS, as a user, and through sentinels."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from packages.bananaq.tests.support.banana_daemons import Given, refused
from packages.bananaq.tests.support.banana_fixtures import DaemonFactory
from tests.support.harness import free_port, wait_until
from tests.support.redis_server import RedisServer, plain_client
from tests.support.tls_front import Certificates


def secure(directory: Path, certificates: Certificates, *options: str) -> RedisServer:
    """A Redis with an additional TLS port."""
    directory.mkdir()
    server = RedisServer(
        directory,
        *("--tls-port", str(free_port()), "--tls-auth-clients", "yes"),
        *("--tls-cert-file", certificates.cert("good")),
        *("--tls-key-file", certificates.key("good")),
        *("--tls-ca-cert-file", certificates.ca),
        *options,
    )
    server.start()
    return server


def tls_options(server: RedisServer, certificates: Certificates) -> list[str]:
    return [
        "--store", "redis",
        "--redis-addr", f"127.0.0.1:{server.options[1]}",
        "--redis-tls", "yes",
        "--redis-tls-ca-cert-file", certificates.ca,
        "--redis-tls-cert-file", certificates.cert("client"),
        "--redis-tls-key-file", certificates.key("client"),
    ]  # fmt: skip


@pytest.fixture
def redis(tmp_path: Path, certificates: Certificates) -> Iterator[RedisServer]:
    server = secure(tmp_path / "redis", certificates)
    yield server
    server.stop()


def test_events_are_kept_over_tls_as_a_user(
    run_bananaq: DaemonFactory, redis: RedisServer, certificates: Certificates
) -> None:
    with plain_client(redis.port) as client:
        client.execute_command(
            "ACL", "SETUSER", "banana", "on", ">se cret", "~bananaq:*", "&*", "+@all", "-@admin"
        )
        client.execute_command("ACL", "SETUSER", "default", "off")
    options = tls_options(redis, certificates)
    options += ["--redis-username", "banana", "--redis-password", "se cret"]
    daemon = run_bananaq("embedded", *options)
    wire = daemon.wire()
    wire.send("QNOTIFY", "g", "q", "BLOCK", 30)  # is notified over a separate connection
    assert isinstance(daemon.ask("QADD", "q", 60, "body"), bytes)
    assert wire.read() is not None
    assert Given(daemon.ask("QGET", "q", "g")).body == b"body"
    wait_until(lambda: daemon.info("redis")["redis_link_status"] == "up")


def test_a_redis_with_an_untrusted_certificate_is_reported(
    run_bananaq: DaemonFactory, redis: RedisServer, certificates: Certificates
) -> None:
    options = tls_options(redis, certificates)
    options[options.index(certificates.ca)] = certificates.other
    daemon = run_bananaq("embedded", *options)
    assert "certificate verify failed" in daemon.wire().error("QADD", "q", 60, "body")
    wait_until(lambda: daemon.info("redis")["redis_link_status"] == "refusing")


def test_after_a_failover_the_new_primary_has_the_events(
    run_bananaq: DaemonFactory, tmp_path: Path, certificates: Certificates
) -> None:
    first = secure(tmp_path / "first", certificates)
    second = secure(tmp_path / "second", certificates, "--replicaof", "127.0.0.1", str(first.port))
    (tmp_path / "sentinel").mkdir()
    sentinel = RedisServer(tmp_path / "sentinel", "--sentinel")
    sentinel.config = tmp_path / "sentinel" / "sentinel.conf"
    sentinel.config.write_text(
        f"sentinel monitor main 127.0.0.1 {first.port} 1\n"
        "sentinel down-after-milliseconds main 500\n"
        "sentinel failover-timeout main 3000\n"
        "protected-mode no\n"
    )
    servers = [first, second, sentinel]
    try:
        sentinel.start()
        with plain_client(sentinel.port) as client, plain_client(second.port) as replica:
            client.execute_command("ACL", "SETUSER", "asker", "on", ">w", "~*", "&*", "+@all")
            client.execute_command("AUTH", "asker", "w")
            client.execute_command("ACL", "SETUSER", "default", "off")
            daemon = run_bananaq(
                "embedded",
                *("--store", "redis", "--redis-service", "main"),
                *("--redis-addr", f"127.0.0.1:1,127.0.0.1:{sentinel.port}"),
                *("--redis-sentinel-username", "asker", "--redis-sentinel-password", "w"),
            )
            wire = daemon.wire()
            assert isinstance(wire("QADD", "q", 600, "before"), bytes)
            wait_until(lambda: client.execute_command("SENTINEL", "REPLICAS", "main"))
            wait_until(lambda: replica.dbsize() > 0)
        first.stop()
        wait_until(lambda: isinstance(daemon.ask("QADD", "q", 600, "after"), bytes))
        assert Given(wire("QGET", "q", "g")).body == b"before"
        wait_until(lambda: daemon.info("redis")["redis_link_status"] == "up")
    finally:
        for server in servers:
            server.stop()


def test_an_invalid_certificate_file_prevents_the_start(
    tmp_path: Path, certificates: Certificates
) -> None:
    status, said = refused(
        tmp_path, "--store", "redis", "--redis-tls", "yes", "--redis-tls-ca-cert-file", "/nosuch"
    )
    assert status == 1
    assert "/nosuch" in said
