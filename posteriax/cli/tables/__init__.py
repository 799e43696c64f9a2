"""Tables and image arrays from files, and what has to be done to them before a network can learn from them."""

from posteriax.cli.tables.reading import DataError as DataError
