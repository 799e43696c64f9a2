"""Shared internals: checks, leaf paths, files, progress, running moments, the compiler. Imported by module."""
