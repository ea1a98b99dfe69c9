"""What has changed in a checkout of git."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Changes:
    """Changed files, relative to the top of the tree.

    Args:
        since: the revision that the tree is compared with. kept: changed and new files. gone: files
            that were removed; one that was renamed is both.
    """

    since: str
    kept: frozenset[str]
    gone: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        """All changed files."""
        return self.kept | self.gone


def git(root: Path, *arguments: str) -> str:
    """The output of git. Raises subprocess.CalledProcessError."""
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def files(root: Path) -> list[str]:
    """The files of a checkout, without ignored ones."""
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return [path for path in {*listed.split("\0")} if path and (root / path).is_file()]


def between(root: Path, since: str, *until: str) -> Changes:
    """What changed since a revision: until now, with what is not committed, or until another."""
    words = git(root, "diff", "--name-status", "--no-renames", "-z", since, *until).split("\0")
    found = dict(zip(words[1::2], words[::2], strict=False))
    if not until:
        new = git(root, "ls-files", "-z", "--others", "--exclude-standard").split("\0")
        found |= dict.fromkeys(filter(None, new), "A")
    gone = frozenset(path for path, status in found.items() if status == "D")
    return Changes(since, frozenset(found) - gone, gone)


def since_base(root: Path, base: str | None = None) -> Changes:
    """What the tree has that ``base`` had not when they parted.

    Without ``base``: what the upstream branch does not have, or, without one, what is not
    committed. If there is nothing of the kind, the last commit.
    """
    if base is not None:
        return between(root, git(root, "merge-base", base, "HEAD").strip())
    try:
        since = git(root, "merge-base", "@{upstream}", "HEAD").strip()
    except subprocess.CalledProcessError:
        since = "HEAD"
    found = between(root, since)
    return found if found.all else between(root, "HEAD~1")
