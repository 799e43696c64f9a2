"""scikit-learn estimators: any posterior behind `fit` and `predict`.

>>> from sklearn.datasets import load_iris
>>> from posteriax.sklearn import BayesianMLPClassifier
>>> X, y = load_iris(return_X_y=True)
>>> model = BayesianMLPClassifier(method="map", length={"steps": 300}, random_state=0).fit(X, y)
>>> bool(model.score(X, y) > 0.9)
True
"""

import warnings
from typing import Any

from posteriax.tabular.estimators import BayesianMLPClassifier, BayesianMLPRegressor

__all__ = ["BayesianMLPClassifier", "BayesianMLPRegressor"]


def __getattr__(name: str) -> Any:
    """The names that estimators with a network of one's own used to have."""
    makers: dict[str, Any] = {
        "BayesianNetClassifier": BayesianMLPClassifier,
        "BayesianNetRegressor": BayesianMLPRegressor,
    }
    if name not in makers:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    make = makers[name]
    warnings.warn(f"{name}(net, ...) is now {make.__name__}(net=net, ...)", DeprecationWarning, stacklevel=2)
    return lambda net, method="mean-field", **settings: make(method, net=net, **settings)
