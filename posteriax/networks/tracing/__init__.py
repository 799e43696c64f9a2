"""Tracing: what a network does with its leaves, read off its program."""
