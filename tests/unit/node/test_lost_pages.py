"""Jobs whose files cannot be read are found in the append-only file, all in one pass."""

from pathlib import Path

import pytest

from disque_trio.node import lost_pages
from tests.unit.node.test_page_files import Stage, stage

__all__ = ["stage"]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were looked through."""
    passes: list[Path] = []
    real = lost_pages.LostPages._records

    def counted(lost: lost_pages.LostPages):
        passes.append(lost._aof())
        return real(lost)

    monkeypatch.setattr(lost_pages.LostPages, "_records", counted)
    return passes


def kept(stage: Stage) -> list[Path]:
    return sorted(stage.pages.glob("*" + lost_pages.ENDING))


def damage(stage: Stage) -> None:
    """Spoil all page files: some are gone, some cut, some differ by one bit."""
    for number, path in enumerate(sorted(stage.pages.glob("*.seg"))):
        content = bytearray(path.read_bytes())
        content[40] ^= 1
        if number % 3 == 0:
            path.unlink()
        else:
            path.write_bytes(content if number % 3 == 1 else content[:60])


@pytest.mark.parametrize("gathered", [1, 1 << 20])
def test_one_pass_finds_what_all_files_had(
    stage: Stage, passes: list[Path], monkeypatch: pytest.MonkeyPatch, gathered: int
) -> None:
    monkeypatch.setattr(lost_pages, "GATHERED_BYTES", gathered)
    stage.fill()
    damage(stage)
    assert stage.take_all() == stage.ids
    assert len(passes) == 1
    assert stage.node.paging.pages.lost == 0
    assert not list(stage.pages.iterdir())


def test_whole_files_are_left_alone(stage: Stage, passes: list[Path]) -> None:
    stage.fill()
    first = min(stage.pages.glob("*.seg"), key=lambda path: int(path.stem))
    first.unlink()
    stage.bench("SHOW", stage.ids[50])
    assert stage.take_all() == stage.ids
    assert len(passes) == 1
    assert not kept(stage)


@pytest.mark.parametrize("how", ["cut", "flip", "gone"])
def test_what_was_kept_and_is_damaged_is_looked_for_again(
    stage: Stage, passes: list[Path], how: str
) -> None:
    stage.fill()
    damage(stage)
    taken = [stage.bench.get() for _ in range(30)]
    assert len(passes) == 1
    files = kept(stage)
    assert files
    for path in files:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        if how == "gone":
            path.unlink()
        else:
            path.write_bytes(content if how == "flip" else content[:-1])
    assert [id for id in taken if id] + stage.take_all() == stage.ids
    assert len(passes) > 1
    assert stage.node.paging.pages.lost == 0


def test_without_room_for_the_others_they_are_looked_for_again(
    stage: Stage, passes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_pages, "GATHERED_BYTES", 1000)
    stage.fill()
    damage(stage)
    real = Path.open

    def full(path: Path, mode: str = "r", *more, **others):
        if path.suffix == lost_pages.ENDING and "b" in mode and mode != "rb":
            raise OSError(28, "No space left on device")
        return real(path, mode, *more, **others)

    monkeypatch.setattr(Path, "open", full)
    assert stage.take_all() == stage.ids
    assert len(passes) > 1
    assert stage.node.paging.pages.lost == 0
    assert not list(stage.pages.iterdir())
