"""What all nodes of a cluster share by name: policies, schedules, bindings; files and packets."""
