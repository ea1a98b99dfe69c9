"""The outbox of a Django project, in a database file and in PostgreSQL."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import make_url

from disque_integrations.outbox.command import main
from disque_trio.client.sync import Client, connect
from packages.integrations.tests.support.outbox import Database, listens
from tests.support.commands import run_command, start_command
from tests.support.harness import LiveNode, wait_until

MANAGE = "packages.integrations.tests.support.outbox_project"
COMMITTED = ["1", "2", "4", "5"]


class Project:
    """A project whose database is created by its migrations."""

    def __init__(self, url: str) -> None:
        parsed = make_url(url)
        engine = "sqlite3" if parsed.drivername == "sqlite" else "postgresql"
        settings = {
            "ENGINE": f"django.db.backends.{engine}",
            "NAME": parsed.database,
            "USER": parsed.username or "",
            "HOST": parsed.query.get("host", ""),
        }
        self._environment = {**os.environ, "PROJECT_DATABASE": json.dumps(settings)}
        self.manage("migrate", "-v", "0")
        # The table exists, so nothing is created.
        self.database = Database(url)

    def manage(self, *arguments: str, check: bool = True) -> int:
        """Run ``manage.py`` with ``arguments``; return its exit status."""
        done = run_command(MANAGE, *arguments, env=self._environment)
        assert done.returncode == 0 or not check, done.stderr
        return done.returncode

    @contextmanager
    def managing(self, *arguments: str) -> Iterator[None]:
        """Run ``manage.py`` with ``arguments``; it is killed at the end."""
        streams = {"stdout": subprocess.DEVNULL}
        with start_command(MANAGE, *arguments, env=self._environment, **streams) as process:
            try:
                yield
            finally:
                process.kill()


@pytest.fixture(params=["sqlite", "postgres"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").database()
    else:
        url = f"sqlite:///{tmp_path}/project.db"
    it = Project(url)
    yield it
    it.database.close()


@pytest.fixture
def client(shared_node: LiveNode) -> Iterator[Client]:
    with connect(f"127.0.0.1:{shared_node.port}") as it:
        yield it


def test_committed_rows_become_jobs(
    project: Project, shared_node: LiveNode, client: Client
) -> None:
    node = f"127.0.0.1:{shared_node.port}"
    project.manage("transactions")
    assert project.database.bodies() == COMMITTED
    project.manage("disque_outbox", "--once", "--nodes", node)
    assert project.database.records() == []
    assert sorted(job.body.decode() for job in client.get("q", nohang=True, count=9)) == COMMITTED
    assert client.qlen("q") == 0

    # Refused rows stay; the command for all databases reads the table, too.
    client.pause("paused", "in")
    project.database.add("later", queue="paused")
    assert project.manage("disque_outbox", "--once", "--nodes", node, check=False) == 1
    [record] = project.database.records()
    assert (record.attempts, record.error.split()[0]) == (1, "PAUSED")
    project.manage("transactions")
    assert main(["--database", project.database.url, "--nodes", node, "--once"]) == 1
    assert project.database.bodies() == ["later"]
    assert client.qlen("q") == len(COMMITTED)
    client.pause("paused", "none")


def test_it_forwards_until_it_is_stopped(
    project: Project, shared_node: LiveNode, client: Client
) -> None:
    postgres = project.database.url.startswith("postgres")
    options = ["--poll", "3600" if postgres else "0.02", "--keep", "3600"]
    nodes = ["--nodes", f"127.0.0.1:{shared_node.port}"]
    with project.managing("disque_outbox", *nodes, *options):
        wait_until(lambda: not postgres or listens(project.database))
        project.manage("transactions")
        wait_until(lambda: all(record.job for record in project.database.records()))
        assert client.qlen("q") == len(COMMITTED)


def test_the_models_have_no_changes_without_a_migration(tmp_path: Path) -> None:
    project = Project(f"sqlite:///{tmp_path}/project.db")
    project.manage("makemigrations", "--check", "--dry-run", "-v", "0")
    project.manage("check")
    project.database.close()
