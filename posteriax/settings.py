"""Settings as plain data: likelihoods, priors and families to JSON and back, without running any code.

Only the classes listed here can come out of a file.
"""

import base64
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import numpyro.distributions as dist

from posteriax import families, likelihoods, priors

KNOWN: dict[str, type] = {
    f"{module.__name__.rsplit('.', 1)[-1]}.{name}": getattr(module, name)
    for module, names in (
        (likelihoods, ("Categorical", "Bernoulli", "Normal")),
        (priors, ("Normal", "HeNormal", "Laplace", "Logistic", "StudentT", "NormalMixture", "LogUniform", "ARD")),
        (
            families,
            (
                *("Normal", "KTied", "MatrixNormal", "FullCovariance", "LowRank", "Rank1", "PointPerComponent"),
                *("MultiplicativeNormal", "ZeroMeanNormal", "ZeroMeanNoise", "Dropout", "Point", "SparseNormal"),
            ),
        ),
    )
    for name in names
}
_NAMES = {kind: name for name, kind in KNOWN.items()}
_EMPCOV = "priors.EmpCov"  # by itself: it is not made of its settings alone, but of a matrix too
_NUMPYRO = ("Normal", "Laplace", "Logistic", "StudentT", "Cauchy", "Uniform")


def to_plain(value: Any) -> Any:
    """JSON-ready data for a setting, or a dictionary of settings by path.

    >>> from posteriax import priors as p
    >>> to_plain(p.Normal(scale=0.3))
    {'kind': 'priors.Normal', 'scale': 0.3, 'loc': 0.0}
    """
    if isinstance(value, Mapping):
        return {"kind": "by path", "patterns": {pattern: to_plain(one) for pattern, one in value.items()}}
    if isinstance(value, priors.Given):
        return to_plain(value.value)
    if isinstance(value, dist.Distribution):
        name = type(value).__name__
        if name not in _NUMPYRO or type(value) is not getattr(dist, name):
            raise TypeError(
                f"a posterior with the NumPyro prior {name} cannot be saved; savable: {', '.join(_NUMPYRO)}"
            )
        arguments = {key: np.asarray(getattr(value, key)).tolist() for key in value.arg_constraints}
        return {"kind": f"numpyro.{name}", **arguments}
    if isinstance(value, priors.EmpCov):
        own = {"scale": value.scale, "floor": value.floor, "kernel": value.kernel and list(value.kernel)}
        return {"kind": _EMPCOV, **own, "covariance": _symmetric_to_text(value.covariance)}
    if type(value) not in _NAMES:
        raise TypeError(
            f"a posterior with the setting {value!r} cannot be saved: {type(value).__name__} is not posteriax's own"
        )
    return {"kind": _NAMES[type(value)], **{f.name: _number(getattr(value, f.name)) for f in fields(value)}}


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def from_plain(plain: Any) -> Any:
    """The setting that `to_plain` described.

    >>> from_plain({"kind": "families.KTied", "k": 2, "scale": 0.01})
    KTied(k=2, scale=0.01)
    """
    plain = dict(plain)
    kind = plain.pop("kind")
    if kind == "by path":
        return {pattern: from_plain(one) for pattern, one in plain["patterns"].items()}
    if kind.startswith("numpyro.") and kind.removeprefix("numpyro.") in _NUMPYRO:
        return getattr(dist, kind.removeprefix("numpyro."))(**{key: np.asarray(v) for key, v in plain.items()})
    if kind == _EMPCOV:
        return priors.EmpCov.from_covariance(_symmetric_from_text(plain.pop("covariance")), **plain)
    if kind not in KNOWN:
        raise ValueError(f"unknown setting {kind!r}")
    return KNOWN[kind](**plain)


def _symmetric_to_text(matrix: np.ndarray) -> str:
    """The upper triangle's bytes as text: bit-exact, and smaller than digits would be.

    >>> _symmetric_from_text(_symmetric_to_text(np.array([[2.0, 0.1], [0.1, 1.0]]))).tolist()
    [[2.0, 0.1], [0.1, 1.0]]
    """
    triangle = matrix[np.triu_indices(len(matrix))]
    return base64.b64encode(triangle.astype("<f8").tobytes()).decode("ascii")


def _symmetric_from_text(text: str) -> np.ndarray:
    triangle = np.frombuffer(base64.b64decode(text, validate=True), "<f8")
    size = (math.isqrt(8 * len(triangle) + 1) - 1) // 2
    if size * (size + 1) // 2 != len(triangle):
        raise ValueError(f"{len(triangle)} numbers are no triangle of a symmetric matrix")
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = triangle
    return matrix + np.triu(matrix, 1).T
