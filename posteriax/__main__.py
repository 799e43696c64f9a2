"""`python -m posteriax`: the command line."""

from posteriax.cli.app import main

if __name__ == "__main__":
    main()
