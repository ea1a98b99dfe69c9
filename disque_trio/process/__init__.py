"""System services of a server process: log, clock, systemd, descriptors, addresses."""
