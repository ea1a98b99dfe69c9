"""Shared by tests: nodes and other servers, test benches for parts of a node, and records."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # of the checkout
PYTHONPATH = os.pathsep.join(map(str, [ROOT, *sorted(ROOT.glob("packages/*"))]))
"""For processes that import the packages of the tree, and what tests define."""
HANG_SECONDS = 120.0
"""Ends what hangs, and nothing else: ten times what the slowest wait took at ten processes a CPU.
The time-out of pytest is above it."""
