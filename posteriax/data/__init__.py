"""Data: batches for the driver, and small data sets that ship with the package."""

from posteriax.data.fashion import fashion_small as fashion_small
from posteriax.data.moons import two_moons as two_moons
