"""The cluster beneath the jobs: who is in it, who is alive, how they find each other."""
