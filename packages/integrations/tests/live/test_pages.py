"""The first five minutes of docs/django.md and docs/dramatiq.md, as typed."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from disque_integrations.django.framework import task_backends
from disque_integrations.django.management.commands.disque_worker import Command
from tests.support import PYTHONPATH, ROOT, shims
from tests.support.doc_blocks import block
from tests.support.documented import page_of
from tests.support.harness import HANG_SECONDS, free_port, wait_until

ID = re.compile(r"D-[0-9a-f]{8}-[0-9A-Za-z+/]{24}-[0-9a-f]{4}")
FRAMEWORK = type(task_backends).__module__  # django.tasks, or django_tasks


class Reader:
    """Somebody who types the commands of a page, in a directory in place of that of the page."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory / name
        self._told = f"/tmp/{name}"
        self._port = str(free_port())
        self._ids: dict[str, str] = {}
        self._job: subprocess.Popen[bytes] | None = None
        path = f"{shims.programs()}:{os.environ['PATH']}"
        self._env = os.environ | {"PATH": path, "PYTHONPATH": PYTHONPATH}

    def read(self, page: str) -> None:
        """Follow the first section of the page."""
        part = page.split("\n## ")[1]
        for match in re.finditer(
            r"^(?P<where>[^\n]*`(?P<file>\S+\.py)`[^\n]*):\n\n```python\n(?P<code>(?:.*\n)*?)```"
            r"|^    \$ (?P<command>.*)\n(?P<shown>(?:    (?!\$).*\n)*)",
            part,
            re.MULTILINE,
        ):
            if match["file"]:
                self._write(match["where"], match["file"], match["code"])
            else:
                self._type(match["command"], [line.strip() for line in match["shown"].splitlines()])

    def _here(self, text: str) -> str:
        text = text.replace(self._told, str(self.directory)).replace("7711", self._port)
        return ID.sub(lambda id: self._ids[id[0]], text).replace("django.tasks", FRAMEWORK)

    def _write(self, where: str, file: str, code: str) -> None:
        mode = "a" if "end of" in where else "w"
        with (self.directory / file).open(mode) as out:
            out.write(self._here(code))

    def _type(self, command: str, shown: list[str]) -> None:
        if "venv" in command:
            return  # the tests have their own
        command = self._here(command)
        cwd = self.directory if self.directory.exists() else ROOT
        if command.endswith("&"):
            with (self.directory / "job.log").open("wb") as log:
                self._job = subprocess.Popen(
                    ["bash", "-c", f"exec {command[:-1]}"],
                    cwd=cwd,
                    env=self._env,
                    stdout=log,
                    stderr=log,
                )
            return
        if command == "kill %1":
            assert self._job is not None
            self._job.send_signal(signal.SIGTERM)
            assert self._job.wait(HANG_SECONDS) == 0
            return

        def done() -> bool:
            """Return whether the output is as shown; readers retry if a task has not ended."""
            run = subprocess.run(
                ["bash", "-c", command],
                cwd=cwd,
                env=self._env,
                capture_output=True,
                text=True,
            )
            assert "get_result" in command or run.returncode == 0, run.stderr
            lines = (run.stdout + run.stderr * (not run.stdout)).splitlines()
            if not shown:
                return True
            told = ID.findall("\n".join(shown))
            self._ids |= dict(zip(told, ID.findall("\n".join(lines)), strict=False))
            return [ID.sub("ID", line.strip()) for line in lines] == [
                ID.sub("ID", line) for line in shown
            ]

        if "get_result(" in command:
            wait_until(done)
        else:
            assert done(), command

    def close(self) -> None:
        if self._job is not None and self._job.poll() is None:
            self._job.kill()
            self._job.wait(HANG_SECONDS)
        pid = self.directory / "node.pid"
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGKILL)


@pytest.mark.parametrize(("page", "name"), [("django.md", "shop"), ("dramatiq.md", "mails")])
def test_the_guide_works_as_typed(page: str, name: str, tmp_path: Path) -> None:
    reader = Reader(tmp_path, name)
    try:
        reader.read(page_of(page).read_text())
        wait_until(lambda: not (reader.directory / "node.pid").exists())
    finally:
        reader.close()


def test_the_worker_of_django_takes_what_the_page_types() -> None:
    [line] = block("packages/integrations/docs/django.md", "python manage.py disque_worker").lines()
    program, name, *words = line.split()[1:]
    options = Command().create_parser(program, name).parse_args(words)
    assert (options.concurrency, options.queues) == (8, "mail,default")
