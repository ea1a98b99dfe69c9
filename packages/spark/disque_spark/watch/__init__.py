"""The live audit: looks at growing logs at intervals, and reports what is new."""
