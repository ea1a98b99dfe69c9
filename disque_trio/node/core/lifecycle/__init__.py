"""What becomes of a job: queued again, acknowledged, dead letter, lost with its node."""
