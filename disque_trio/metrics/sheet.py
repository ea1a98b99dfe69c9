"""A sheet of metrics: what one scrape collects.

Sample lines are the same in both of Prometheus's formats. They are written here, since
prometheus-client takes 4 µs for each and this code a tenth of that: a node with thousands of queues
has hundreds of thousands of them. Everything else on a page is made by prometheus-client
(``formats``), whose parser checks the whole page in tests.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

from disque_trio.histogram import Histogram
from disque_trio.metrics.labels import escape

BLOCK = 16 << 10  # bytes of lines that are kept and sent together
Kind = Literal["gauge", "counter", "histogram"]


class Family:
    """The samples of one metric.

    Attributes:
        name: its name; that of a counter ends with _total.
        kind, text: its type and its help text.
        common: labels of all samples, as ``pairs`` makes them.
    """

    __slots__ = ("_blocks", "_lines", "_size", "common", "kind", "name", "text")

    def __init__(self, name: str, kind: Kind, text: str, common: str = "") -> None:
        self.name = name
        self.kind: Kind = kind
        self.text = text
        self.common = common
        # Freeing many small objects at once would take long.
        self._blocks: list[bytes] = []
        self._lines: list[str] = []
        self._size = 0

    def write(self, lines: str) -> None:
        """Add samples as lines of text."""
        self._lines.append(lines)
        self._size += len(lines)
        if self._size >= BLOCK:
            self._close_block()

    def _close_block(self) -> None:
        self._blocks.append("".join(self._lines).encode())
        self._lines.clear()
        self._size = 0

    def blocks(self) -> list[bytes]:
        """Return all lines, in blocks."""
        if self._lines:
            self._close_block()
        return self._blocks

    def add_blocks(self, blocks: Sequence[bytes]) -> None:
        """Add lines that were made elsewhere, in blocks."""
        if self._lines:
            self._close_block()
        self._blocks += blocks

    def labels(self, labels: str) -> str:
        """``labels``, made by ``pairs``, and those of all samples."""
        return f"{self.common},{labels}" if self.common and labels else self.common or labels

    def add(self, value: float, labels: str = "") -> None:
        """Add a sample. ``labels`` are made by ``pairs``."""
        labels = self.labels(labels)
        name = f"{self.name}{{{labels}}}" if labels else self.name
        self.write(f"{name} {number(value)}\n")

    def add_histogram(self, histogram: Histogram, labels: str = "") -> None:
        """Add the samples of ``histogram``, in seconds."""
        name = self.name
        labels = self.labels(labels)
        units = histogram.per_second
        before = f"{name}_bucket{{{labels}{',' if labels else ''}le="
        count = 0
        lines: list[str] = []
        for bound, more in zip(histogram.bounds, histogram.counts, strict=False):
            count += more
            lines.append(f'{before}"{bound / units!r}"}} {count}\n')
        count += histogram.counts[-1]
        among = f"{{{labels}}}" if labels else ""
        lines.append(
            f'{before}"+Inf"}} {count}\n'
            f"{name}_count{among} {count}\n"
            f"{name}_sum{among} {number(histogram.sum / units)}\n"
        )
        self.write("".join(lines))


class Sheet:
    """What one scrape has collected. ``families`` are in the order of the page.

    Args:
        common: labels of all samples.
    """

    def __init__(self, common: str = "") -> None:
        self._common = common
        self.families: list[Family] = []

    def gauge(self, name: str, text: str, value: float | None = None) -> Family:
        """Add a gauge, with a sample if there is a ``value``."""
        return self._family(name, "gauge", text, value)

    def counter(self, name: str, text: str, value: float | None = None) -> Family:
        """Add a counter; ``name`` must end with _total."""
        return self._family(name, "counter", text, value)

    def histogram(self, name: str, text: str, value: Histogram | None = None) -> Family:
        """Add a histogram."""
        family = self._family(name, "histogram", text, None)
        if value is not None:
            family.add_histogram(value)
        return family

    def _family(self, name: str, kind: Kind, text: str, value: float | None) -> Family:
        family = Family(name, kind, text, self._common)
        if value is not None:
            family.add(value)
        self.families.append(family)
        return family


def raw(families: Iterable[Family]) -> list[bytes]:
    """``families`` in pieces, for ``read_raw``. No line of a page has a NUL."""
    pieces: list[bytes] = []
    for family in families:
        pieces.append(b"\0" + f"{family.name} {family.kind} {family.text}\n".encode())
        pieces += family.blocks()
    return [*pieces, b"\0"]


def read_raw(page: bytes) -> list[Family]:
    """The families of a page that consists of the pieces of ``raw``. Raises ``ValueError``."""
    first, *parts, last = page.split(b"\0") if b"\0" in page else (b"?", b"?")
    if first or last:
        raise ValueError("not a whole page")
    families: list[Family] = []
    for part in parts:
        head, _, lines = part.partition(b"\n")
        name, kind, text = head.decode().split(" ", 2)
        if kind not in ("gauge", "counter", "histogram"):
            raise ValueError(f"not a kind: {kind}")
        family = Family(name, kind, text)  # type: ignore[arg-type]
        # Not in one piece: compressing it would take long.
        family.add_blocks([lines[at : at + BLOCK] for at in range(0, len(lines), BLOCK)])
        families.append(family)
    return families


class Source(Protocol):
    """Something that provides metrics."""

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Write the metrics into ``sheet``. Each step takes well below a millisecond; the things
        measured may change between steps."""


def pairs(labels: Mapping[str, str]) -> str:
    """Format ``labels`` for a sample."""
    return ",".join(f'{name}="{escape(value)}"' for name, value in labels.items())


def number(value: float) -> str:
    """Format ``value`` as Prometheus writes it."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
