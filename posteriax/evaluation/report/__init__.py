"""The report of a comparison: one self-contained page, and Matplotlib figures."""
