"""The ``disque`` command: one command, commands from a file, an interactive prompt, live rates."""
