"""The command line: commands over the library, for tables and images in files."""

from posteriax.cli.commands import main as main
