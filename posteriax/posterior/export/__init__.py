"""Exported predictives: what a posterior predicts, its draws inside, as a file that needs no posteriax."""
