"""Servers for Google's and Azure's storage protocols and HDFS, as processes.

Google's is an emulator from PyPI. ``tools/setup.sh stores`` installs Azurite, from npm, and Hadoop:
their tests are skipped unless DISQUE_STORES=1 (``make test-stores``). Hadoop is a real NameNode and
a real DataNode, from the jars of an old PySpark.
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
from xml.sax.saxutils import escape

import pytest

from disque_spark.files import Location, location
from tests.support.harness import HANG_SECONDS, free_port, wait_until

PLACE = Path(sys.prefix)
AZURITE = PLACE / "azurite" / "node_modules" / ".bin" / "azurite-blob"
HADOOP = PLACE / "hadoop"
# Azurite's well-known account: no secret.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
# Java 17 must permit what Hadoop 2.7 does.
OPENED = ("java.lang", "java.util", "java.nio", "sun.nio.ch", "java.net")
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


# ---- HDFS ----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def hadoop_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Host and port of a NameNode, which has a DataNode."""
    _skip_unless_wanted()
    home = tmp_path_factory.mktemp("hadoop")
    address = f"127.0.0.1:{free_port()}"
    _configure(home, address)
    opened = [word for name in OPENED for word in ("--add-opens", f"java.base/{name}=ALL-UNNAMED")]
    start = ["java", "-Xmx256m", *opened, "-cp", f"{home}:{HADOOP}/*"]
    server = "org.apache.hadoop.hdfs.server"
    name_node, data_node = f"{server}.namenode.NameNode", f"{server}.datanode.DataNode"
    with running([*start, name_node, "-format", "-nonInteractive"], home) as process:
        assert process.wait(HANG_SECONDS) == 0
    with running([*start, name_node], home) as names, running([*start, data_node], home) as data:

        def works() -> bool:
            assert names.poll() is None
            assert data.poll() is None
            try:
                location(f"hdfs://{address}/ready").write_bytes(b"1")
            except OSError:
                return False
            return True

        wait_until(works)
        yield address


@pytest.fixture
def hadoop(hadoop_server: str) -> Location:
    """A directory that does not exist yet."""
    return location(f"hdfs://{hadoop_server}/place-{next(_numbers)}")


def _configure(home: Path, address: str) -> None:
    settings = {
        "core": {"fs.defaultFS": f"hdfs://{address}", "hadoop.tmp.dir": str(home / "data")},
        "hdfs": {
            "dfs.webhdfs.enabled": "false",  # needs a library that is missing
            "dfs.permissions.enabled": "false",
            "dfs.replication": "1",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.namenode.http-address": f"127.0.0.1:{free_port()}",
            "dfs.datanode.address": f"127.0.0.1:{free_port()}",
            "dfs.datanode.http.address": f"127.0.0.1:{free_port()}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{free_port()}",
        },
    }
    for name, values in settings.items():
        lines = [
            f"<property><name>{key}</name><value>{escape(value)}</value></property>"
            for key, value in values.items()
        ]
        text = f"<configuration>{''.join(lines)}</configuration>"
        (home / f"{name}-site.xml").write_text(text)
    for name in ("hdfs", "datanode"):  # the servers look for their web pages
        pages = home / "webapps" / name / "WEB-INF"
        pages.mkdir(parents=True)
        (pages / "web.xml").write_text("<web-app></web-app>")
    (home / "webapps" / "static").mkdir()
