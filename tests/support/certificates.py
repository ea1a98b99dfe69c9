"""Certificates for tests of TLS, made with the openssl command."""

import subprocess
from pathlib import Path

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"


def make_certificates(directory: Path, name: str) -> None:
    """Make NAME-ca.pem, a CA that signs NAME.pem with the key NAME.key."""
    make_authority(directory, name)
    sign(directory, name, name)


def make_authority(directory: Path, name: str) -> None:
    """Make NAME-ca.pem, a CA with the key NAME-ca.key."""
    ca = [f"{name}-ca.key", "-out", f"{name}-ca.pem"]
    openssl(
        directory,
        "req",
        "-x509",
        *KEY,
        "-nodes",
        "-subj",
        f"/CN={name}",
        "-days",
        "2",
        "-keyout",
        *ca,
    )


def sign(
    directory: Path, authority: str, name: str, *, expired: bool = False, names: str = NAMES
) -> None:
    """Make NAME.pem with the key NAME.key, signed by the CA AUTHORITY-ca.pem. It is for this
    machine's names or others, and valid until tomorrow, or until yesterday."""
    request = [f"{name}.key", "-out", f"{name}.csr"]
    openssl(directory, "req", *KEY, "-nodes", "-subj", "/CN=node", "-keyout", *request)
    Path(directory, "names.ext").write_text(names)
    signed = ["-CA", f"{authority}-ca.pem", "-CAkey", f"{authority}-ca.key", "-CAcreateserial"]
    valid = ["-days", "-1" if expired else "2", "-extfile", "names.ext"]
    openssl(directory, "x509", "-req", *valid, "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")


def openssl(directory: Path, *args: str) -> None:
    """Run openssl in ``directory``."""
    subprocess.run(["openssl", *args], cwd=directory, check=True, capture_output=True)
