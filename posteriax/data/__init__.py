"""Data: batches for the driver, and small data sets."""

from posteriax.data.moons import two_moons as two_moons
