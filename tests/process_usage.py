"""What Linux says that a process uses."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def resident_bytes(pid: int) -> int:
    """The memory of a process that is in RAM now."""
    return _status_bytes(pid, "VmRSS")


def peak_bytes(pid: int) -> int:
    """The most that was in RAM since the process began, or since `forget_peak`."""
    return _status_bytes(pid, "VmHWM")


def forget_peak(pid: int) -> None:
    """Have `peak_bytes` begin anew (proc(5), clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def cpu_share(pid: int, seconds: float) -> float:
    """Watch a process for so long, and return how much of one core it used."""
    before_s = _cpu_s(pid)
    threading.Event().wait(seconds)
    return (_cpu_s(pid) - before_s) / seconds


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status_bytes(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
