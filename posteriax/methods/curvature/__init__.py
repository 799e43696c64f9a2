"""Curvature of the log joint: Gauss-Newton matrices, their structures, the evidence, and priors tuned by it."""
