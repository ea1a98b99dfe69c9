"""What becomes of a job: queued again, acknowledged, dead letter, lost; who waits for its end."""
