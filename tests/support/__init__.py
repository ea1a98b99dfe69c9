"""What tests share: nodes and other servers to talk to, parts of a node on a bench, and books."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # of the checkout
