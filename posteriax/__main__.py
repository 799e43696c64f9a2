"""`python -m posteriax`: the command line."""

from posteriax.cli import main

if __name__ == "__main__":
    main()
