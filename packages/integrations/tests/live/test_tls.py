"""Everything that accepts the URL of a cluster accepts ``disques://``, with TLS and a user."""

import os
from collections.abc import Iterator
from pathlib import Path

import dramatiq
import pytest
from celery import Celery
from dramatiq.results import Results

import disque_integrations.celery  # noqa: F401 - makes disques:// known
from disque_integrations.dramatiq import DisqueBackend, DisqueBroker
from disque_integrations.outbox.command import main as outbox
from disque_trio.client.sync import connect
from disque_trio.tasks import Disque
from tests.support.commands import run_command
from tests.support.harness import LiveNode
from tests.support.tls_front import Certificates, TlsFront, tls_front


@pytest.fixture(scope="module")
def front(session_node: LiveNode, certificates: Certificates) -> Iterator[TlsFront]:
    with tls_front(certificates.server(clients=True), session_node.port) as front:
        yield front


@pytest.fixture
def url(shared_node: LiveNode, front: TlsFront, certificates: Certificates) -> str:
    ours = f"ssl_certfile={certificates.cert('client')}&ssl_keyfile={certificates.key('client')}"
    return f"disques://127.0.0.1:{front.port}?ssl_ca_certs={certificates.ca}&{ours}"


def test_tasks_and_their_results(url: str) -> None:
    with Disque(url) as app:

        @app.task(queue="tasks-by-tls")
        def double(number: int) -> int:
            return 2 * number

        handle = double.add(21)
        with connect(url) as client:
            [job] = client.get("tasks-by-tls")
            assert job.id == handle.id


def test_a_worker_check_uses_tls(url: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("from disque_trio.tasks import Disque\napp = Disque()\n")

    def check(url: str) -> tuple[int, str]:
        environ = {**os.environ, "DISQUE_URL": url}
        words = ["shop:app", "--check"]
        done = run_command("disque-worker", *words, cwd=tmp_path, env=environ, text=True)
        return done.returncode, done.stdout + done.stderr

    assert check(url)[0] == 0
    status, said = check(url.replace("ours-ca", "other-ca"))
    assert status == 1
    assert "certificate verify failed" in said


def test_an_outbox(
    url: str, certificates: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = ["--database", f"sqlite:///{tmp_path / 'app.db'}", "--check"]
    address = url.partition("?")[0].removeprefix("disques://")
    ours = ["--cert", certificates.cert("client"), "--key", certificates.key("client")]
    for nodes in ([url], [address, "--tls", "--cacert", certificates.ca, *ours]):
        outbox([*database, "--nodes", *nodes])
        assert "answers" in capsys.readouterr().out
    assert outbox([*database, "--nodes", address, "--tls", "--cacert", "/nosuch"]) == 1


@pytest.mark.parametrize("by", ["url", "setting"])
def test_celery(url: str, certificates: Certificates, by: str) -> None:
    app = Celery("by-tls", broker=url if by == "url" else url.partition("?")[0])
    if by == "setting":
        app.conf.broker_use_ssl = {
            "ca_certs": certificates.ca,
            "certfile": certificates.cert("client"),
            "keyfile": certificates.key("client"),
        }
    app.conf.result_backend = url

    @app.task(name="by_tls", shared=False)
    def add(a: int, b: int) -> int:
        return a + b

    sent = add.delay(1, 2)
    with connect(url) as client:
        assert client.qlen("celery") == 1
    app.backend.store_result(sent.id, 3, "SUCCESS")
    assert app.backend.get_task_meta(sent.id)["result"] == 3
    assert app.backend.as_uri().startswith("disques://127.0.0.1:")
    app.close()


def test_dramatiq(url: str) -> None:
    broker = DisqueBroker(url=url)
    backend = DisqueBackend(url=url)
    broker.add_middleware(Results(backend=backend))

    @dramatiq.actor(broker=broker, store_results=True)
    def double(number: int) -> int:
        return 2 * number

    worker = dramatiq.Worker(broker, worker_threads=1)
    worker.start()
    try:
        assert double.send(21).get_result(backend=backend, block=True) == 42
    finally:
        worker.stop()
        backend.close()
        broker.close()
