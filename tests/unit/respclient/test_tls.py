"""TLS of clients: options, files, and the errors of failed handshakes."""

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_trio.respclient.login import Login
from disque_trio.respclient.tls import Encryption, Tls, is_alert, refusal
from tests.support.tls_front import Certificates, all_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return all_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ends = socket.socketpair()
    for end in ends:
        end.settimeout(30)
    yield ends
    for end in ends:
        end.close()


def shake(
    pair: tuple[socket.socket, socket.socket],
    server: ssl.SSLContext,
    tls: Tls,
    host: str = "127.0.0.1",
) -> str | None:
    """Return what ``refusal`` says of a handshake and the first read; None if both worked."""
    ours, theirs = pair

    def serve() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as secure:
                secure.sendall(b"+OK\r\n")
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with Encryption(tls).wrap(ours, host) as secure:
            assert secure.recv(5) == b"+OK\r\n"
    except OSError as error:
        return refusal(error) or "passes"
    finally:
        thread.join()
    return None


def test_a_valid_certificate_is_accepted(
    certificates: Certificates, pair: tuple[socket.socket, socket.socket]
) -> None:
    assert shake(pair, certificates.server(), Tls(certificates.ca)) is None


def test_authorities_may_be_in_a_directory(
    certificates: Certificates, pair: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    context = ssl.create_default_context(cafile=certificates.ca)
    [authority] = context.get_ca_certs(binary_form=True)
    hashed = tmp_path / "hashed"
    hashed.mkdir()
    pem = hashed / "ca.pem"
    pem.write_text(ssl.DER_cert_to_PEM_cert(authority))
    os.system(f"openssl rehash {hashed}")
    assert shake(pair, certificates.server(), Tls(ca_dir=str(hashed))) is None


@pytest.mark.parametrize(
    ("name", "host", "tls", "said"),
    [
        ("foreign", "127.0.0.1", {}, "unable to get local issuer certificate"),
        ("expired", "127.0.0.1", {}, "certificate has expired"),
        ("named", "127.0.0.1", {}, "not valid for '127.0.0.1'"),
        ("good", "disque.example", {}, "not valid for 'disque.example'"),
        ("good", "localhost", {"server_name": "disque.example"}, "for 'disque.example'"),
    ],
)
def test_an_invalid_certificate_is_refused_for_good(
    certificates: Certificates,
    pair: tuple[socket.socket, socket.socket],
    name: str,
    host: str,
    tls: dict[str, str],
    said: str,
) -> None:
    told = shake(pair, certificates.server(name), Tls(certificates.ca, **tls), host)
    assert told is not None
    assert "certificate verify failed" in told
    assert said in told


@pytest.mark.parametrize(
    ("name", "tls"),
    [
        ("named", {"server_name": "disque.example"}),
        ("named", {"check_hostname": False}),
        ("expired", {"verify": False}),
        ("foreign", {"verify": False}),
    ],
)
def test_checks_can_be_turned_off(
    certificates: Certificates,
    pair: tuple[socket.socket, socket.socket],
    name: str,
    tls: dict[str, str | bool],
) -> None:
    assert shake(pair, certificates.server(name), Tls(certificates.ca, **tls)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_server_that_wants_a_certificate_says_so(
    certificates: Certificates,
    pair: tuple[socket.socket, socket.socket],
    version: ssl.TLSVersion,
) -> None:
    server = certificates.server(clients=True)
    server.minimum_version = server.maximum_version = version
    told = shake(pair, server, Tls(certificates.ca))
    assert told is not None
    assert "the server requires a certificate from us" in told


@pytest.mark.parametrize("name", ["foreign", "expired", "client"])
def test_a_client_certificate_is_accepted_or_refused(
    certificates: Certificates, pair: tuple[socket.socket, socket.socket], name: str
) -> None:
    ours = Tls(certificates.ca, certificates.cert(name), certificates.key(name))
    told = shake(pair, certificates.server(clients=True), ours)
    expected = {
        "foreign": "the server does not trust our certificate",
        "expired": "our certificate has expired",
        "client": None,
    }
    assert told == expected[name]


def test_incompatible_versions_are_reported(
    certificates: Certificates, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    server = certificates.server()
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    client = Tls(certificates.ca).context()
    client.minimum_version = ssl.TLSVersion.TLSv1_3

    def serve() -> None:
        with pytest.raises(ssl.SSLError):
            server.wrap_socket(theirs, server_side=True)

    thread = threading.Thread(target=serve)
    thread.start()
    with pytest.raises(ssl.SSLError) as error:
        Encryption(client).wrap(ours, "localhost")
    thread.join()
    assert refusal(error.value) == "no TLS version in common"


def test_a_server_without_tls_is_reported_and_one_that_hangs_up_may_be_retried(
    certificates: Certificates, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    theirs.sendall(b"-ERR Protocol error\r\n")
    with pytest.raises(ssl.SSLError) as error:
        Encryption(Tls(certificates.ca)).wrap(ours, "localhost")
    assert refusal(error.value) == "the server does not speak TLS on this port"
    ours, theirs = socket.socketpair()
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(OSError) as lost:  # noqa: PT011
        Encryption(Tls(certificates.ca)).wrap(ours, "localhost")
    theirs.close()
    assert refusal(lost.value) is None


def test_a_silent_server_causes_a_timeout(
    certificates: Certificates, pair: tuple[socket.socket, socket.socket]
) -> None:
    pair[0].settimeout(0.01)
    with pytest.raises(TimeoutError):
        Encryption(Tls(certificates.ca)).wrap(pair[0], "localhost")


def test_the_cause_of_an_error_counts() -> None:
    outer = RuntimeError()
    outer.__cause__ = OSError()
    assert refusal(outer) is None
    assert refusal(ssl.SSLError(1, "whatever")) is None


def test_a_tls_alert_is_recognized_while_waiting_for_a_reply() -> None:
    assert is_alert(b"\x15\x03\x03\x00\x02\x02\x0a")
    assert not is_alert(b"+OK\r\n")
    assert not is_alert(b"")


@pytest.mark.parametrize("content", [None, b"", b"rubbish"])
@pytest.mark.parametrize("which", ["ca_file", "cert_file", "key_file", "ca_dir"])
def test_an_unusable_file_is_named(
    certificates: Certificates, tmp_path: Path, which: str, content: bytes | None
) -> None:
    file = tmp_path / "file.pem"
    if content is not None:
        file.write_bytes(content)
    options = {"cert_file": certificates.cert("client")} if which == "key_file" else {}
    with pytest.raises(ValueError, match="TLS") as error:
        Tls(**{**options, which: str(file)}).context()
    assert str(file) in str(error.value)


def test_no_passphrase_is_asked_for(certificates: Certificates, tmp_path: Path) -> None:
    locked = tmp_path / "locked.key"
    key = certificates.key("client")
    os.system(f"openssl ec -in {key} -aes256 -passout pass:secret -out {locked} 2>/dev/null")
    with pytest.raises(ValueError, match="protected by a password"):
        Tls(cert_file=certificates.cert("client"), key_file=str(locked)).context()


def test_a_key_must_match_its_certificate() -> None:
    with pytest.raises(ValueError, match="needs its certificate"):
        Tls(key_file="k").context()


def test_a_given_context_is_used_as_it_is() -> None:
    context = ssl.create_default_context()
    encryption = Encryption.of(context)
    assert encryption is not None
    assert encryption.context() is context
    assert encryption.name("fe80::1%eth0") == "fe80::1"
    assert Encryption.of(None) is Encryption.of(False) is None
    assert Encryption.of(True) is Encryption.of(True)  # reading all of them is slow


def test_renewed_certificates_are_loaded(certificates: Certificates, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(Path(certificates.other).read_text())
    encryption = Encryption(Tls(str(file)))
    before = encryption.context()
    assert encryption.context() is before
    file.write_text("half a f")
    os.utime(file, (1, 1))
    assert encryption.context() is before
    file.write_text(Path(certificates.ca).read_text())
    os.utime(file, (2, 2))
    after = encryption.context()
    assert after is not before
    assert after.get_ca_certs() != before.get_ca_certs()


def test_a_login_only_sends_what_servers_understand() -> None:
    assert Login().auth is None
    assert Login(password="p").auth == ["AUTH", "p"]  # C Disque has no users
    assert Login("u", "p").auth == ["AUTH", "u", "p"]
    assert Login("u").auth == ["AUTH", "u", ""]
    assert "secret" not in repr(Login("u", "secret"))
    assert Login(tls=False).encryption() is None
