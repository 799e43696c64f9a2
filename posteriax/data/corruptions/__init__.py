"""Common corruptions of images: fifteen kinds and three extras, at five severities (docs/corruptions.md).

>>> from posteriax import data
>>> len(data.CORRUPTIONS), data.EXTRA_CORRUPTIONS
(15, ('speckle_noise', 'gaussian_blur', 'saturate'))
"""

from posteriax.data.corruptions.corrupt import corrupt as corrupt
from posteriax.data.corruptions.suite import CORRUPTIONS as CORRUPTIONS
from posteriax.data.corruptions.suite import EXTRA_CORRUPTIONS as EXTRA_CORRUPTIONS
