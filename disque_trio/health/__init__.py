"""What can be wrong with a server: one table of conditions, and what is kept of those that hold."""
