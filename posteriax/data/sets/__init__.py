"""The data sets of the papers, by name. One file per kind; a loader registers itself by its name."""

from posteriax.data.sets import built_in, images, imdb, physionet, uci  # noqa: F401  register themselves
from posteriax.data.sets.data_set import DataSet as DataSet
from posteriax.data.sets.data_set import Scaling as Scaling
from posteriax.data.sets.data_set import load as load
from posteriax.data.sets.data_set import names as names
from posteriax.data.sets.fetching import DataError as DataError
