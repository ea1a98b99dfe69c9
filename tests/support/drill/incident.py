"""What an incident of the drill is, and the cure that a page of the documentation types."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.support.documented import section
from tests.support.drill.stage import Stage

_CURE = re.compile(r"^\*\*Cure[.,*].*?(?=^\*\*Well again|\Z)", re.MULTILINE | re.DOTALL)


def look_of(page: str, title: str) -> str:
    """The commands of a section that find the cause: those before its word *Cure*."""
    return _typed(section(page, title).partition("**Cure")[0])


def cure_of(page: str, title: str) -> str:
    """The commands of a section: those between its words *Cure* and *Well again*, or all, if it
    does not say where the cure begins."""
    text = section(page, title)
    found = _CURE.search(text)
    return _typed(found[0] if found else text)


def _typed(text: str) -> str:
    lines = text.splitlines(True)
    return "".join(line[4:] for line in lines if line.startswith("    "))


class Scene:
    """An incident under way.

    Attributes:
        stage: where. jobs: how many go to the wrong queue. notes: what was measured, for the table.
    """

    def __init__(self, stage: Stage, jobs: int) -> None:
        self.stage = stage
        self.jobs = jobs
        self.notes: list[str] = []


@dataclass(frozen=True)
class Incident:
    """Something that goes wrong at night.

    Attributes:
        title: what, in a few words.
        signs: the places that have to tell of it, each with a pattern of what they say.
        within: s, for all of these.
        page, section: what cures it.
        cause: makes it happen.
        repair: what people do besides typing, before they type. done: what that is, in words.
        finish: what they do after it.
        typed: which of the commands of the section are typed; None: all.
        names: what stands there, and what it is called here.
        before: prepares for it.
        probe: what a client asks meanwhile; returns the error.
        is_cured: what else has to be so in the end.
        lingers: a pattern of what is reported for a while after the cure, on purpose.
        proxied: whether the network is broken.
        options: changes what the nodes are started with.
    """

    title: str
    signs: Mapping[str, str]
    within: float
    page: str
    section: str
    cause: Callable[[Scene], None]
    done: str = ""
    repair: Callable[[Scene], None] | None = None
    finish: Callable[[Scene], None] | None = None
    typed: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    before: Callable[[Scene], None] | None = None
    probe: Callable[[Scene], str] | None = None
    is_cured: Callable[[Scene], bool] | None = None
    lingers: str = ""
    proxied: bool = False
    options: Callable[[Stage], None] | None = None

    def commands(self) -> str:
        """What is typed of the section's cure."""
        lines = cure_of(self.page, self.section)
        if self.typed is not None:
            kept = re.findall(rf"^(?:{self.typed}).*\n", lines, re.MULTILINE)
            lines = "".join(kept)
        return self._named(lines)

    def look(self) -> str:
        """What the section types to find the cause."""
        return self._named(look_of(self.page, self.section))

    def _named(self, lines: str) -> str:
        for here, name in self.names.items():
            lines = lines.replace(here, name)
        return lines

    @property
    def link(self) -> str:
        """To the section, from docs/."""
        words = re.sub(r"[^\w -]", "", self.section.lower())
        return f"{self.page}#{words.replace(' ', '-')}"
