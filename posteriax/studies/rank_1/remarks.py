"""What stands on the page in words: what was done and cut, and what was found out about claims that do not hold."""

SUMMARY = """\
Every weight matrix is multiplied by random factors for its inputs and its outputs; a mixture of four such networks
costs little more than one.
"""

REMARKS: dict[str, str] = {}
