"""Questions to other nodes and their answers, packets of a turn, and when rare work is due."""
