"""Shared by tests: nodes and other servers, test benches for parts of a node, and records."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # of the checkout
HANG_SECONDS = 60.0  # a generous limit for hangs: machines are busy
