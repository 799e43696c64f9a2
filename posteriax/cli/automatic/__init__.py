"""What people without code need not write: a network for their data, settings of the methods, and two commands."""
