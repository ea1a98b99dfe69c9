"""The commands of ``disque-pipeline``: their arguments, checks of these, and what they run."""
