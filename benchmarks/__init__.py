"""Benchmarks of posteriax on this machine: `python -m benchmarks NAME` prints ratios with their spread."""
