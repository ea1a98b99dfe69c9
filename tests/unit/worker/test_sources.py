"""Which source files have changed."""

import os
from pathlib import Path

from disque_trio.worker.sources import Sources


def test_a_changed_file_is_reported_once(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("a.py", "b.py", "gone.py")]
    for name in names[:2]:
        Path(name).write_text("")
    sources = Sources()
    sources.add(names)
    sources.add(names)
    assert sources.changed() == []
    os.utime(names[0], (1, 1))
    assert sources.changed() == [names[0]]
    assert sources.changed() == []


def test_an_added_or_removed_file_is_a_change(tmp_path: Path) -> None:
    sources = Sources()
    path = tmp_path / "a.py"
    sources.add([str(path)])
    path.write_text("")
    assert sources.changed() == [str(path)]
    path.unlink()
    assert sources.changed() == [str(path)]
