"""Certificates for tests of TLS, made with the openssl command."""

import subprocess
from pathlib import Path

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]


def make_certificates(directory: Path, name: str) -> None:
    """NAME-ca.pem is an authority that signed NAME.pem, whose key is NAME.key."""

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=directory, check=True, capture_output=True)

    ca = [f"{name}-ca.key", "-out", f"{name}-ca.pem"]
    openssl("req", "-x509", *KEY, "-nodes", "-subj", f"/CN={name}", "-days", "2", "-keyout", *ca)
    request = [f"{name}.key", "-out", f"{name}.csr"]
    openssl("req", *KEY, "-nodes", "-subj", "/CN=node", "-keyout", *request)
    signed = ["-CA", f"{name}-ca.pem", "-CAkey", f"{name}-ca.key", "-CAcreateserial"]
    openssl("x509", "-req", "-days", "2", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
