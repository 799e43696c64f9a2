"""`compare` and `predict` for a table or images and no code: a network and settings chosen for the data."""
