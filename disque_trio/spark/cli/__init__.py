"""The commands of ``disque-pipeline``: arguments, checks of them, and what each command runs."""
