"""The process metrics, which the system provides."""

from pathlib import Path

from disque_trio.metrics.formats import SystemMetrics


def test_a_service_that_sees_only_processes_has_them(tmp_path: Path) -> None:
    (tmp_path / "self").symlink_to("/proc/self")  # ProcSubset=pid: no /proc/stat
    names = {metric.name for metric in SystemMetrics(str(tmp_path)).read()}
    assert {"process_cpu_seconds", "process_resident_memory_bytes", "process_open_fds"} <= names
