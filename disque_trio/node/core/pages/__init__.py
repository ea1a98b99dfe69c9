"""Jobs of a queue that lie on disk: what memory keeps of them, and the bytes of their files."""
