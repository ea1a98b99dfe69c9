"""The views of the pages, one module each."""
