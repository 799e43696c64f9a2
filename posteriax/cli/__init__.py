"""The command line: commands over the library, for tables and images in files."""

from posteriax.cli.app import main as main
