"""Data: batches for training, data sets by name, augmentation, and image corruptions."""

from posteriax.data.augmentation import Augmentation as Augmentation
from posteriax.data.augmentation import RandomCrop as RandomCrop
from posteriax.data.augmentation import RandomFlip as RandomFlip
from posteriax.data.batches import Batch as Batch
from posteriax.data.batches import Examples as Examples
from posteriax.data.batches import Minibatches as Minibatches
from posteriax.data.batches import class_weights as class_weights
from posteriax.data.batches import full_batch as full_batch
from posteriax.data.corruptions.corrupt import CorruptedSet as CorruptedSet
from posteriax.data.corruptions.corrupt import Corruption as Corruption
from posteriax.data.corruptions.corrupt import corrupt as corrupt
from posteriax.data.corruptions.corrupt import corrupted as corrupted
from posteriax.data.corruptions.suite import CORRUPTIONS as CORRUPTIONS
from posteriax.data.corruptions.suite import EXTRA_CORRUPTIONS as EXTRA_CORRUPTIONS
from posteriax.data.inputs import Normalise as Normalise
from posteriax.data.inputs import channels_first as channels_first
from posteriax.data.sets.built_in import curve_with_gap as curve_with_gap
from posteriax.data.sets.built_in import fashion_small as fashion_small
from posteriax.data.sets.built_in import two_moons as two_moons
from posteriax.data.sets.data_set import DataSet as DataSet
from posteriax.data.sets.data_set import Scaling as Scaling
from posteriax.data.sets.data_set import load as load
from posteriax.data.sets.data_set import names as names
from posteriax.data.sets.fetching import DataError as DataError
from posteriax.data.sources import Feed as Feed
from posteriax.data.sources import HostArrays as HostArrays
from posteriax.data.sources import Loader as Loader
from posteriax.data.sources import is_large as is_large
from posteriax.data.sources import is_loader as is_loader
from posteriax.data.target_scale import TargetMoments as TargetMoments

__all__ = [
    "CORRUPTIONS",
    "EXTRA_CORRUPTIONS",
    "CorruptedSet",
    "DataError",
    "DataSet",
    "Normalise",
    "RandomCrop",
    "RandomFlip",
    "Scaling",
    "channels_first",
    "class_weights",
    "corrupt",
    "corrupted",
    "curve_with_gap",
    "fashion_small",
    "load",
    "names",
    "two_moons",
]
