"""What the rows of the clocks of an audit say."""

from collections.abc import Mapping, Sequence


def least_in(rows: Sequence[Mapping[str, int]]) -> dict[tuple[int, int], int]:
    """The least ms of each pair in rows of LEAST_SCHEMA."""
    least: dict[tuple[int, int], int] = {}
    for row in rows:
        pair = (row["source"], row["target"])
        least[pair] = min(least.get(pair, row["ms"]), row["ms"])
    return least
