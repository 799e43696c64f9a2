"""`compare` and `predict` for tables and images without code: network and settings are chosen for the data."""
