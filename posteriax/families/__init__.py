"""Variational families: the shape of an approximate posterior for a leaf. One file each.

>>> from posteriax import families as q
>>> {"**": q.KTied(2), "**/bias": q.Point()}
{'**': KTied(k=2, scale=0.01), '**/bias': Point()}
"""

from posteriax.families.blocks import Block as Block
from posteriax.families.blocks import blocks_of as blocks_of
from posteriax.families.blocks import misfit_notes as misfit_notes
from posteriax.families.dropout import Dropout as Dropout
from posteriax.families.family import (
    DiagonalGaussian as DiagonalGaussian,
)
from posteriax.families.family import (
    Family as Family,
)
from posteriax.families.family import (
    Gaussian as Gaussian,
)
from posteriax.families.family import ParameterUnits as ParameterUnits
from posteriax.families.family import (
    Variational as Variational,
)
from posteriax.families.full_covariance import FullCovariance as FullCovariance
from posteriax.families.ktied import KTied as KTied
from posteriax.families.low_rank import LowRank as LowRank
from posteriax.families.low_rank import LowRankPrecision as LowRankPrecision
from posteriax.families.matrix_normal import MatrixNormal as MatrixNormal
from posteriax.families.matrix_normal import factors as factors
from posteriax.families.multiplicative import MultiplicativeNormal as MultiplicativeNormal
from posteriax.families.normal import Normal as Normal
from posteriax.families.point import Point as Point
from posteriax.families.rank1 import PointPerComponent as PointPerComponent
from posteriax.families.rank1 import Rank1 as Rank1
from posteriax.families.rotated_normal import RotatedNormal as RotatedNormal
from posteriax.families.sparse import SparseNormal as SparseNormal
from posteriax.families.zero_mean import ZeroMeanNoise as ZeroMeanNoise
from posteriax.families.zero_mean import ZeroMeanNormal as ZeroMeanNormal

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
