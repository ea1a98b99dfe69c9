"""The ``disque`` command: runs a command, commands from a file or a prompt; shows live rates."""
