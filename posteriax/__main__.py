"""`python -m posteriax`: the command line."""

from posteriax.cli import main

main()
