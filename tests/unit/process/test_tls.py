"""The TLS settings: what they mean, and which combinations are refused."""

import ssl
from pathlib import Path

import pytest

from disque_trio.config import Config, ConfigError
from disque_trio.process.certificates import CertificateError, validity
from disque_trio.process.tls import TlsError, dates_of, for_clients
from tests.support.certificates import openssl
from tests.support.tls import all_certificates

DAY = 86_400


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return all_certificates(tmp_path_factory.mktemp("certificates"))


def settings(certificates: Path, **changes: object) -> Config:
    values = {
        "tls-port": 7712,
        "tls-cert-file": str(certificates / "ours.pem"),
        "tls-key-file": str(certificates / "ours.key"),
        "tls-ca-cert-file": str(certificates / "ours-ca.pem"),
    }
    changed = {name.replace("_", "-"): value for name, value in changes.items()}
    return Config(values | changed)


def context_of(config: Config) -> ssl.SSLContext:
    context = for_clients(config)
    assert context is not None
    return context


def test_without_a_port_no_certificate_is_read() -> None:
    assert for_clients(Config({"tls-cert-file": "/no/such/file"})) is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tls_cert_file": ""}, "No tls-cert-file configured!"),
        ({"tls_key_file": ""}, "No tls-key-file configured!"),
        ({"tls_ca_cert_file": ""}, "Either tls-ca-cert-file or tls-ca-cert-dir must be specified"),
        (
            {"tls_ca_cert_file": "", "tls_auth_clients": "optional"},
            "Either tls-ca-cert-file or tls-ca-cert-dir must be specified",
        ),
        ({"tls_cert_file": "/no/such"}, "Failed to load certificate: .*/no/such"),
        ({"tls_key_file": "/no/such"}, "Failed to load private key: .*/no/such"),
        ({"tls_cert_file": "/etc/passwd"}, "/etc/passwd"),
        ({"tls_ca_cert_file": "/no/such"}, "Failed to configure CA certificate"),
        ({"tls_ca_cert_dir": "/no/such"}, "tls-ca-cert-dir /no/such: No such file or directory"),
        ({"tls_cert_file": "/etc/passwd"}, r"there is no certificate .PEM. in the first"),
        ({"tls_key_file": "/etc/passwd"}, r"there is no private key .PEM. in the second"),
        ({"tls_ciphers": "nonsense"}, "Failed to configure ciphers: nonsense"),
    ],
)
def test_unusable_files_are_named(certificates: Path, changes: dict[str, str], named: str) -> None:
    with pytest.raises(TlsError, match=named):
        for_clients(settings(certificates, **changes))


def test_nobody_has_to_show_a_certificate_where_there_is_no_authority(certificates: Path) -> None:
    config = settings(certificates, tls_ca_cert_file="", tls_auth_clients="no")
    assert context_of(config).verify_mode == ssl.CERT_NONE


def test_authorities_may_be_in_a_directory(certificates: Path, tmp_path: Path) -> None:
    (tmp_path / "ours.pem").write_bytes((certificates / "ours-ca.pem").read_bytes())
    openssl(tmp_path, "rehash", ".")
    config = settings(certificates, tls_ca_cert_file="", tls_ca_cert_dir=str(tmp_path))
    assert context_of(config).verify_mode == ssl.CERT_REQUIRED


def test_a_key_of_another_certificate_is_told(certificates: Path) -> None:
    with pytest.raises(TlsError, match="the key is not that of the certificate"):
        for_clients(settings(certificates, tls_key_file=str(certificates / "next.key")))


def test_a_key_may_be_encrypted(certificates: Path, tmp_path: Path) -> None:
    locked = str(tmp_path / "locked.key")
    key = str(certificates / "ours.key")
    openssl(tmp_path, "ec", "-in", key, "-aes256", "-passout", "pass:hush", "-out", locked)
    config = settings(certificates, tls_key_file=locked, tls_key_file_pass="hush")
    context_of(config)
    assert "hush" not in repr(config)
    for wrong in ("", "other"):
        with pytest.raises(TlsError, match="the key is encrypted"):
            for_clients(settings(certificates, tls_key_file=locked, tls_key_file_pass=wrong))


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
        ("TLSv1.3 TLSv1.2", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
        ("tlsv1.2", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
        ("TLSv1.3", ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3),
    ],
)
def test_versions_are_those_that_are_named(
    certificates: Path, text: str, low: ssl.TLSVersion, high: ssl.TLSVersion
) -> None:
    config = settings(certificates)
    config.config_set([(b"tls-protocols", text.encode())])
    context = context_of(config)
    assert (context.minimum_version, context.maximum_version) == (low, high)


@pytest.mark.parametrize("text", ["TLSv1.1", "TLSv1.2 TLSv1", "SSLv3", "1.3"])
def test_unknown_versions_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Config().config_set([(b"tls-protocols", text.encode())])


def test_ciphers_and_their_order_can_be_chosen(certificates: Path) -> None:
    cipher = "ECDHE-ECDSA-AES128-GCM-SHA256"
    context = context_of(settings(certificates, tls_ciphers=cipher))
    assert cipher in {each["name"] for each in context.get_ciphers()}
    assert not context.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    context = context_of(settings(certificates, tls_prefer_server_ciphers=True))
    assert context.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    assert context.options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.skipif(hasattr(ssl.SSLContext, "set_ciphersuites"), reason="this Python can")
def test_suites_of_the_latest_version_are_refused_where_python_cannot_choose_them(
    certificates: Path,
) -> None:
    with pytest.raises(TlsError, match="tls-ciphersuites"):
        for_clients(settings(certificates, tls_ciphersuites="TLS_AES_128_GCM_SHA256"))


def test_sessions_are_not_kept_where_they_are_not_wanted(certificates: Path) -> None:
    assert context_of(settings(certificates)).num_tickets > 0
    assert context_of(settings(certificates, tls_session_caching=False)).num_tickets == 0


def test_a_certificate_says_when_it_is_valid(certificates: Path) -> None:
    file = str(certificates / "ours.pem")
    first, last = validity(Path(file).read_text())
    assert abs(last - first - 2 * DAY) < 2
    assert dates_of(file) == (first, last)
    assert dates_of("/no/such") is None


@pytest.mark.parametrize("days", ["1", "10000", "40000"])
def test_dates_are_read_in_this_and_the_next_century(tmp_path: Path, days: str) -> None:
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-subj", "/CN=x", "-days", days, "-keyout", "x.key", "-out", "x.pem"]
    openssl(tmp_path, "req", "-x509", *key, *files)
    first, last = validity((tmp_path / "x.pem").read_text())
    assert abs(last - first - int(days) * DAY) < 2


def test_a_file_that_is_not_a_certificate_has_no_dates(certificates: Path) -> None:
    whole = (certificates / "ours.pem").read_text()
    lines = whole.splitlines()
    for text in ("", "nonsense", "\n".join([*lines[:3], lines[-1]]), whole[:100]):
        with pytest.raises(CertificateError):
            validity(text)
