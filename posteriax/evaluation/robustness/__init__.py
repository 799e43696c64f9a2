"""Predictions under attack, under shift, and with a guarantee."""
