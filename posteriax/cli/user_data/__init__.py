"""A user's own files: reading tables and arrays, and preparing them for training."""

from posteriax.cli.user_data.messages import DataError as DataError
