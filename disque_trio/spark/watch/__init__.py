"""The live audit: looks at growing logs again and again, and tells what is new."""
