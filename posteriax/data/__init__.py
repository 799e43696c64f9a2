"""Data: batches for the driver, and small data sets that ship with the package."""

from posteriax.data.corrupted import CorruptedSet as CorruptedSet
from posteriax.data.corrupted import corrupted as corrupted
from posteriax.data.corruptions import CORRUPTIONS as CORRUPTIONS
from posteriax.data.corruptions import EXTRA_CORRUPTIONS as EXTRA_CORRUPTIONS
from posteriax.data.corruptions import corrupt as corrupt
from posteriax.data.fashion import fashion_small as fashion_small
from posteriax.data.moons import two_moons as two_moons
