"""A user's own files: reading tables and arrays, and turning them into what a network learns from."""

from posteriax.cli.user_data.messages import DataError as DataError
