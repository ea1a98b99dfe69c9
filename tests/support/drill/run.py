"""Runs the drill, and writes its table.

    python -m tools.drill [--incident a] [--json] [--jobs 300000] [--server PROGRAM] [--write-docs]

Each incident happens to a cluster of its own, with its console, its worker and its load, which is
well before and has to be well after. The exit status is 1 if nobody told of one of them within the
time that it gives, or if its cure did not cure it.
"""

import argparse
import json
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from _pytest.outcomes import OutcomeException

from tests.support import ROOT
from tests.support.drill import of_machines, of_people
from tests.support.drill.incident import Incident, Scene
from tests.support.drill.stage import Prober, Stage
from tests.support.drill.watch import ALERT, CHANNELS, LOOK, Sight, Watch
from tests.support.monitoring import rules

INCIDENTS: Final[dict[str, Incident]] = {
    "a": of_people.WORKERS_DEAD,
    "b": of_people.POISON,
    "c": of_machines.DISK_FULL,
    "d": of_machines.MEMORY_FULL,
    "e": of_machines.NODE_LOST,
    "f": of_machines.SPLIT,
    "g": of_machines.CLOCK,
    "h": of_people.PURGED,
    "i": of_machines.CERTIFICATE,
    "i2": of_machines.CERTIFICATE_ENDS,
    "j": of_machines.RESTART,
    "k": of_people.NOISY,
    "l": of_people.WRONG_QUEUE,
}
GREEN_WITHIN: Final = 120.0  # s after the cure
PAGE: Final = ROOT / "docs" / "drill.md"
BEGIN, END = "<!-- drill: begin -->\n", "<!-- drill: end -->\n"


@dataclass
class Result:
    """What became of an incident.

    Attributes:
        told: the first thing that each place said of it. silent: the places that should have.
        page, section: what cures it. cure: what is done besides typing. typed: its commands.
        green: s from the beginning of the cure until all was well; None: it was not.
        problem: why it could not be tried.
    """

    letter: str
    title: str
    page: str
    section: str
    cure: str
    told: list[Sight] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    typed: str = ""
    green: float | None = None
    notes: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def is_right(self) -> bool:
        """Whether somebody told of it in time, and it was cured."""
        return not self.problem and not self.silent and self.green is not None


@contextmanager
def probing(scene: Scene, incident: Incident) -> Iterator[Prober | None]:
    """Ask as a client until the block ends."""
    probe = incident.probe
    if probe is None:
        yield None
        return
    prober = Prober(lambda: probe(scene))
    try:
        yield prober
    finally:
        prober.end()


def play(letter: str, jobs: int, server: str, directory: Path) -> Result:
    """Cause an incident, look who tells of it, and cure it."""
    incident = INCIDENTS[letter]
    title = incident.title.format(jobs=jobs)
    result = Result(letter, title, incident.link, incident.section, incident.done)
    stage = Stage(directory, server, proxied=incident.proxied)
    with ExitStack() as stack:
        try:
            if incident.options is not None:
                incident.options(stage)
            stack.enter_context(stage.playing())
        except OutcomeException as problem:
            stage.close()
            result.problem = str(problem)
            return result
        scene = Scene(stage, jobs)
        result.notes = scene.notes
        if incident.before is not None:
            incident.before(scene)
        with probing(scene, incident) as prober:
            watch = Watch(stage, prober, incident.look() if LOOK in incident.signs else "")
            incident.cause(scene)
            signs = dict(incident.signs)
            if stage.prometheus is None and signs.pop(ALERT, ""):
                scene.notes.append("alerts were not tried, since there is no Prometheus")
            _wait_for_signs(watch, signs, incident.within)
        result.told, result.silent = _signs(watch, signs)
        _cure(scene, incident, result)
    return result


def _wait_for_signs(watch: Watch, signs: Mapping[str, str], within: float) -> None:
    while True:
        watch.look()
        if all(watch.found(channel, sign) for channel, sign in signs.items()):
            return
        if watch.seconds() > within:
            return


def _signs(watch: Watch, signs: Mapping[str, str]) -> tuple[list[Sight], list[str]]:
    """What each place said first, the earliest first, and the places that said nothing."""
    told, silent = [], []
    for channel in sorted(signs, key=CHANNELS.index):
        sight = watch.found(channel, signs[channel])
        if sight is None:
            silent.append(channel)
        else:
            told.append(sight)
    return sorted(told, key=lambda sight: sight.after), silent


def _cure(scene: Scene, incident: Incident, result: Result) -> None:
    """Do what the page says, and wait until all is well."""
    began = time.monotonic()
    if incident.repair is not None:
        incident.repair(scene)
    result.typed = incident.commands()
    if result.typed:
        scene.stage.type(result.typed)
    if incident.finish is not None:
        incident.finish(scene)
    watch = Watch(scene.stage, None, "")
    cured = incident.is_cured
    while (seconds := time.monotonic() - began) < GREEN_WITHIN:
        added = scene.stage.load.added
        watch.look()
        is_well = watch.is_well(incident.lingers) and scene.stage.load.added > added
        if is_well and (cured is None or cured(scene)):
            result.green = seconds
            return
    result.notes.append(f"not well: {watch.wrong()}")


# ---- the table ----------------------------------------------------------------------------------


def table(results: Sequence[Result]) -> str:
    """The table of all results, in Markdown."""
    rows = ["| incident | who tells, after seconds | the page, and the cure | well again after |\n"]
    rows.append("| --- | --- | --- | --- |\n")
    rows += [_row(result) for result in results]
    return "".join(rows)


def _row(result: Result) -> str:
    if result.problem:
        return f"| {result.letter}. {result.title} | not tried: {result.problem} | | |\n"
    told = [_told(sight) for sight in result.told]
    told += [f"**not: {channel}**" for channel in result.silent]
    words = ", ".join(told) or "nobody has to"
    count = len(result.typed.splitlines())
    typed = f"{count} line{'s' * (count != 1)} typed" if count else ""
    cure = "; ".join(filter(None, [result.cure, typed]))
    green = "**not**" if result.green is None else f"{result.green:.0f} s"
    notes = f". {'; '.join(result.notes)}" if result.notes else ""
    return (
        f"| {result.letter}. {result.title} | {words} | [{result.section}]({result.page}): {cure} "
        f"| {green}{notes} |\n"
    )


def _told(sight: Sight) -> str:
    """Where it was said, and when; of an alert, which one, and how much later it fires."""
    if sight.channel != ALERT:
        return f"{sight.channel} {sight.after:.0f}"
    lasts = {rule["alert"]: rule.get("for", "") for rule in rules()}
    waits = lasts.get(sight.text, "")
    return f"`{sight.text}` {sight.after:.0f}" + (f" (fires {waits} later)" if waits else "")


def write_docs(results: Sequence[Result]) -> None:
    """Put the table into the page; rows of incidents that were not tried stay."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    kept = dict(re.findall(r"^(\| (\w+)\. .*\n)", old, re.MULTILINE))
    rows = {letter: row for row, letter in kept.items()}
    rows |= {result.letter: _row(result) for result in results}
    head = table([])
    whole = head + "".join(rows[letter] for letter in INCIDENTS if letter in rows)
    PAGE.write_text(before + BEGIN + whole + END + after, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.drill", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--incident", action="append", choices=INCIDENTS, help="only this one")
    parser.add_argument("--json", action="store_true", help="print objects in place of the table")
    parser.add_argument(
        "--jobs", type=int, default=300_000, help="in the wrong queue (%(default)s)"
    )
    parser.add_argument("--server", default="", help="the program of the nodes")
    parser.add_argument(
        "--write-docs", action="store_true", help="write the table to docs/drill.md"
    )
    options = parser.parse_args(arguments)
    if arguments is None:  # as a program: leave no process behind
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    results = []
    for letter in options.incident or INCIDENTS:
        with tempfile.TemporaryDirectory(prefix="drill-") as place:
            results.append(play(letter, options.jobs, options.server, Path(place)))
        if options.json:
            print(json.dumps(asdict(results[-1]) | {"right": results[-1].is_right}), flush=True)
        else:
            print(_row(results[-1]), end="", flush=True)
    if options.write_docs:
        write_docs(results)
    return 0 if all(result.is_right for result in results) else 1
