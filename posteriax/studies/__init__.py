"""Studies: what the papers claim, run again by one command, with a verdict on each claim. One file per study."""
