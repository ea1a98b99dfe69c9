"""Packs this package, and the one that it needs, into a zip file, for Spark's workers on other
machines: ``python -m disque_spark.package /tmp/disque_spark.zip``.
"""

import sys
import tempfile
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import disque_trio

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "disque_spark.zip"
_TIME = (1980, 1, 1, 0, 0, 0)  # constant, so that the same package gives the same file


def is_remote(spark: object) -> bool:
    """Whether a session, or an object that belongs to one, is of Spark Connect, with neither a JVM
    nor a ``sparkContext``."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def zipped() -> Path | None:
    """The zip file that this package was imported from; None if it is in a directory."""
    root = Path(__file__).parents[1]
    return root if root.is_file() else None


def packed(directory: Path, name: str = NAME) -> Path:
    """Write the packages into ``directory`` as a zip file, and return its path."""
    path = directory / name
    with zipfile.ZipFile(path, "w") as out:
        for package in (Path(__file__).parent, Path(disque_trio.__file__).parent):
            for module in sorted(package.rglob("*.py")):
                entry = zipfile.ZipInfo(module.relative_to(package.parent).as_posix(), _TIME)
                out.writestr(entry, module.read_bytes(), zipfile.ZIP_DEFLATED)
    return path


def send_package(spark: "SparkSession") -> None:
    """Send this package to the Python workers of a Spark Connect server. Workers of streams do not
    receive what is sent to a session (Spark 4.3): for them, install it on the server."""
    with tempfile.TemporaryDirectory(prefix="disque-") as directory:
        path = packed(Path(directory))
        # A server may keep the files of all its sessions in one directory, and refuses a file with
        # the name of another one but different contents.
        digest = sha256(path.read_bytes()).hexdigest()[:16]
        path = path.rename(path.with_stem(f"{path.stem}-{digest}"))
        spark.addArtifacts(str(path), pyfile=True)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    packed(target.parent, target.name)
