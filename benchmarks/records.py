"""What comparisons found on several machines and days, kept so that a table can say how far their
ratios differ.

A record is a JSON file in ``benchmarks/records``: the conditions of a run, and for each setting and
server the medians of its ratios.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.bench.cli import ROOT, grouped, table

DIRECTORY = ROOT / "benchmarks" / "records"


@dataclass(frozen=True, slots=True)
class Ratio:
    """Our node beside another server in one setting of a run.

    Attributes:
        setting: when files are synced, and how deep the clients' pipelines were.
        server: its name, with what it promises in brackets if that differs.
        cpu, rate: our CPU time a job, and our jobs a second, divided by theirs; medians over the
            rounds of the run.
    """

    setting: str
    server: str
    cpu: float
    rate: float


@dataclass(frozen=True, slots=True)
class Record:
    """A run: its conditions, and what it found."""

    facts: dict[str, str]
    ratios: Sequence[Ratio]

    def write(self, name: str, directory: Path = DIRECTORY) -> None:
        """Keep it as ``name``, in place of an older one of that name."""
        text = json.dumps(asdict(self), indent=1) + "\n"
        (directory / f"{name}.json").write_text(text)


def read(directory: Path = DIRECTORY) -> list[Record]:
    """All records, by the names of their files."""
    found = []
    for path in sorted(directory.glob("*.json")):
        whole = json.loads(path.read_text())
        found.append(Record(whole["facts"], [Ratio(**one) for one in whole["ratios"]]))
    return found


def summary(records: Sequence[Record]) -> str:
    """A table of all ``records``: for each server and setting the range of the ratios of CPU time,
    and in brackets that of the rates; and under it the conditions of each run."""
    ratios = [one for record in records for one in record.ratios]
    settings = list(grouped(ratios, lambda one: one.setting))
    rows = []
    for server, mine in grouped(ratios, lambda one: one.server.partition(" (")[0]).items():
        cells = [_cell([one for one in mine if one.setting == setting]) for setting in settings]
        rows.append([server, *cells])
    runs = [f"- {', '.join(f'{k} {v}' for k, v in record.facts.items())}" for record in records]
    return "\n".join([table(["beside", *settings], rows), "", "The runs:", "", *runs])


def _cell(found: Sequence[Ratio]) -> str:
    """The ranges of ratios, and how the server's promise differs; empty if there are none."""
    if not found:
        return ""
    differs = found[-1].server.partition(" (")[2].rstrip(")")
    cpu, rate = _range([one.cpu for one in found]), _range([one.rate for one in found])
    return f"**{cpu}** ({rate}) {differs}".strip()


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low}-{high}"
