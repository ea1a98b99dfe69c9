"""Clients that connect to bananaq over TLS."""

import ssl
from contextlib import closing
from pathlib import Path

import pytest

from packages.bananaq.tests.support.banana_daemons import spawn
from packages.bananaq.tests.support.banana_fixtures import DaemonFactory
from tests.support.harness import free_port, wait_until
from tests.support.tls import HOST, TlsWire, all_certificates, client_context, tls_options


def test_clients_are_served_over_tls_and_certificates_can_be_changed(
    run_bananaq: DaemonFactory, tmp_path: Path
) -> None:
    certificates = all_certificates(tmp_path)
    port = free_port()
    options = [*tls_options(certificates, port), "--enable-protected-configs", "local"]
    daemon = run_bananaq("embedded", *options)
    with closing(TlsWire(port, client_context(certificates))) as wire:
        assert wire("PING") == b"PONG"
        pair = ["tls-cert-file", str(certificates / "next.pem")]
        assert "Unable to update TLS" in wire.error("CONFIG", "SET", *pair)
        pair += ["tls-key-file", str(certificates / "next.key")]
        assert wire("CONFIG", "SET", *pair) == b"OK"
        with closing(TlsWire(port, client_context(certificates))) as other:
            assert other("PING") == b"PONG"
            assert other.certificate != wire.certificate
    with (
        pytest.raises((ssl.SSLError, EOFError)),
        closing(TlsWire(port, client_context(certificates, None))) as wire,
    ):
        wire("PING")
    assert daemon.ask("PING") == b"PONG"


def test_it_can_listen_on_tls_only(run_bananaq: DaemonFactory, tmp_path: Path) -> None:
    certificates = all_certificates(tmp_path)
    port = free_port()
    options = (*tls_options(certificates, port), "--listen-addr", f"{HOST}:0")
    with closing(spawn(tmp_path, port, options, "embedded")) as daemon:

        def answers() -> bool:
            assert daemon.process.poll() is None, daemon.log.read_text()
            try:
                with closing(TlsWire(port, client_context(certificates))) as wire:
                    assert wire("CONFIG", "GET", "listen-addr")[1] == f"{HOST}:0".encode()
                    return wire("PING") == b"PONG"
            except ConnectionRefusedError:
                return False

        wait_until(answers)


def test_without_a_certificate_it_does_not_start(run_bananaq: DaemonFactory) -> None:
    with pytest.raises((RuntimeError, pytest.fail.Exception, AssertionError)):
        run_bananaq("embedded", "--tls-port", str(free_port()))
