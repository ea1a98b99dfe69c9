"""What benchmarks need is what the distributions and their tests need, in the same versions."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_versions_are_those_of_the_projects() -> None:
    files = (ROOT / "pyproject.toml", *ROOT.glob("packages/*/pyproject.toml"))
    projects = "".join(file.read_text() for file in files)
    lines = (ROOT / "benchmarks" / "requirements.txt").read_text().splitlines()
    wanted = [line for line in lines if not line.startswith("#")]
    assert wanted
    assert [line for line in wanted if f'"{line}"' not in projects] == []
