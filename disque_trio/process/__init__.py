"""What a server process needs from the system: log, clock, systemd, descriptors, addresses."""
