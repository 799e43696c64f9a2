"""Benchmarks of posteriax on this machine: `posteriax bench NAME` prints ratios, timed in turn, with their spread."""
