"""Figures of posteriors and predictions. Needs matplotlib: the extra `plots`."""
