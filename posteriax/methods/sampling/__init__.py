"""What full-batch samplers share: starts, units of the posterior, the log joint over the whole data set."""
