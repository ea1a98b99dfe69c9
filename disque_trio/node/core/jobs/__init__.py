"""What a node knows of each job: its fields, holders, key, timers, events, and how it ended."""
