"""Variational families: the shape of an approximate posterior for a leaf. One file each.

>>> from posteriax import families as q
>>> {"**": q.KTied(2), "**/bias": q.Point()}
{'**': KTied(k=2, scale=0.01), '**/bias': Point()}
"""

from posteriax.families.dropout import Dropout
from posteriax.families.family import DiagonalGaussian, Family, Gaussian, Variational
from posteriax.families.family import Units as Units
from posteriax.families.full_covariance import FullCovariance
from posteriax.families.ktied import KTied
from posteriax.families.low_rank import LowRank, LowRankPrecision
from posteriax.families.matrix_normal import MatrixNormal
from posteriax.families.multiplicative import MultiplicativeNormal
from posteriax.families.normal import Normal
from posteriax.families.point import Point
from posteriax.families.rank1 import PointPerComponent, Rank1
from posteriax.families.rotated_normal import RotatedNormal
from posteriax.families.sparse import SparseNormal
from posteriax.families.zero_mean import ZeroMeanNoise, ZeroMeanNormal

__all__ = [
    "DiagonalGaussian",
    "Dropout",
    "Family",
    "FullCovariance",
    "Gaussian",
    "KTied",
    "LowRank",
    "LowRankPrecision",
    "MatrixNormal",
    "MultiplicativeNormal",
    "Normal",
    "Point",
    "PointPerComponent",
    "Rank1",
    "RotatedNormal",
    "SparseNormal",
    "Variational",
    "ZeroMeanNoise",
    "ZeroMeanNormal",
]
