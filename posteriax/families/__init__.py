"""Variational families: the shape of an approximate posterior for a leaf. One file each.

>>> from posteriax import families as q
>>> {"**": q.KTied(2), "**/bias": q.Point()}
{'**': KTied(k=2, scale=0.01), '**/bias': Point()}
"""

from posteriax.families.family import Family as Family
from posteriax.families.ktied import KTied as KTied
from posteriax.families.normal import Normal as Normal
from posteriax.families.point import Point as Point
from posteriax.families.zero_mean import ZeroMeanNormal as ZeroMeanNormal
