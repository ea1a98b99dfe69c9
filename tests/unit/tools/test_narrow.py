"""tools/narrow.py finds operators that raise errors in the compiled build only."""

from pathlib import Path

import pytest
from mypy import api

MODULE = """\
from typing import Final

from mypy_extensions import i32, u8

MOST: Final = 7


class Job:
    def __init__(self) -> None:
        self.nacks: i32 = 0
        self.more: i32 = 0
        self.state: u8 = 0


def wrong(job: Job, number: int, least: int = 5) -> bool:
    return (
        job.nacks < number
        or number >= job.nacks
        or job.nacks + job.more == least
        or max(job.state, 3) != number
        or 0 <= job.nacks <= number
        or number << min(job.nacks, 40) > 0
        or job.more + number > 0
    )


def right(job: Job, number: int, names: list[str]) -> bool:
    return (
        int(job.nacks) < number
        or job.nacks == MOST
        or 5 < job.nacks
        or job.nacks != job.more
        or len(names) > job.nacks
        or job.state >= len(names)
        or number < 8
        or number << int(job.nacks) > 0
        or job.more + 1 > 0
        or job.more - job.nacks > 0
    )
"""


@pytest.mark.slow
def test_only_operators_beside_numbers_that_may_be_larger_are_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(MODULE)
    settings = tmp_path / "mypy.toml"
    settings.write_text('[tool.mypy]\nplugins = ["tools.narrow"]\n')
    options = ["--config-file", str(settings), "--cache-dir", str(tmp_path / "cache")]
    told, problems, _ = api.run([*options, "--no-error-summary", str(module)])
    assert problems == ""
    found = [int(line.split(":")[1]) for line in told.splitlines() if line.endswith("[narrow]")]
    lines = MODULE.splitlines()
    first = lines.index("        job.nacks < number") + 1
    assert found == [first + at for at in range(7)]
    assert len(told.splitlines()) == len(found)
