"""Benchmarks: ratios measured interleaved in one run. `posteriax bench NAME` prints them with their spread."""
