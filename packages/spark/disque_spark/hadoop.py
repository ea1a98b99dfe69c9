"""HDFS with the library ``hdfs-native`` (extra ``hdfs``), which needs neither Java nor libhdfs."""

from typing import Any

from hdfs_native.fsspec import BaseFileSystem

# By default, it tries for minutes to reach a NameNode that does not answer.
_SETTINGS = {"dfs.client.failover.max.attempts": "6"}


class Hadoop(BaseFileSystem):
    """A Hadoop file system for fsspec.

    Args:
        scheme: ``hdfs`` or ``viewfs``.
        host, port: of the NameNode; "" and None: as in Hadoop's configuration
            (``HADOOP_CONF_DIR``).
    """

    def __init__(self, scheme: str, host: str, port: int | None) -> None:
        self.protocol = scheme
        super().__init__(host or None, port, **_SETTINGS)

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        """Rename a file; replaces a file that has the new name."""
        self.client.rename(path1, path2, True)

    def mv_new(self, path1: str, path2: str) -> None:
        """Rename a file atomically.

        Raises:
            FileExistsError: another file has the new name.
        """
        self.client.rename(path1, path2, False)

    def _convert_file_status(self, file_status: Any) -> dict[str, Any]:
        # pyarrow looks for this key.
        return super()._convert_file_status(file_status) | {
            "mtime": file_status.modification_time / 1000
        }
