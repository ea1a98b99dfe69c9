"""ADDJOB UNIQUE: no two jobs of a queue with the same key are alive at once."""
