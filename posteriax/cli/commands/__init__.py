"""One file per command: its arguments, and the function that does the work."""
