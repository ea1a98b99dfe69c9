"""Servers for Google's and Azure's storage protocols, as processes.

Google's is an emulator from PyPI. ``tools/setup.sh stores`` installs Azurite, from npm: its tests
are skipped unless DISQUE_STORES=1 (``make test-stores``).
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from urllib.parse import urlencode

import pytest

from disque_spark.files import Location, location
from tests.support.harness import HANG_SECONDS, free_port, wait_until

PLACE = Path(sys.prefix)
AZURITE = PLACE / "azurite" / "node_modules" / ".bin" / "azurite-blob"
# Azurite's well-known account: no secret.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_numbers = count(1)


@contextmanager
def running(
    command: Sequence[str | Path], directory: Path, more: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block."""
    process = subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, **(more or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(HANG_SECONDS)


def listens(port: int) -> bool:
    """Whether a server is running there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), HANG_SECONDS):
        return True
    return False


def _skip_unless_wanted() -> None:
    if os.environ.get("DISQUE_STORES") != "1":
        pytest.skip("make test-stores")


# ---- Google --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def google_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Host and port of a server."""
    port = free_port()
    command = [sys.executable, "-m", "gcp_storage_emulator", "start", "--in-memory"]
    address = ["--host", "127.0.0.1", "--port", str(port)]
    with running([*command, *address], tmp_path_factory.mktemp("google")) as process:
        wait_until(lambda: process.poll() is not None or listens(port))
        assert process.poll() is None
        yield f"127.0.0.1:{port}"


@pytest.fixture
def google(google_server: str) -> Location:
    """A new bucket."""
    said = {"anonymous": "true", "endpoint_override": google_server, "scheme": "http"}
    query = urlencode({**said, "project_id": "a-project", "retry_time_limit": "10"})
    place = location(f"gs://bucket-{next(_numbers)}?{query}")
    there = place.filesystem()
    there.system.create_dir(there.path)
    return place


# ---- Azure ---------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Host and port of a server."""
    _skip_unless_wanted()
    port = free_port()
    flags = ["--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    address = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with running([AZURITE, *flags, *address], tmp_path_factory.mktemp("azure")) as process:
        wait_until(lambda: process.poll() is not None or listens(port))
        assert process.poll() is None
        yield f"127.0.0.1:{port}"


@pytest.fixture
def azure(azure_server: str, monkeypatch: pytest.MonkeyPatch) -> Location:
    """A new container."""
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    said = {
        f"{kind}_storage_{what}": value
        for kind in ("blob", "dfs")
        for what, value in (("authority", azure_server), ("scheme", "http"))
    }
    host = f"container-{next(_numbers)}@{ACCOUNT}.dfs.core.windows.net"
    place = location(f"abfs://{host}?{urlencode(said)}")
    there = place.filesystem()
    there.system.create_dir(there.path)
    return place
