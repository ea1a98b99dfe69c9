"""The commands of bananaq."""
