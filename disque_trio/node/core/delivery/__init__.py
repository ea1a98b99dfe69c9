"""Gives jobs to clients: GETJOB, CONSUME, and patterns of queue names."""
