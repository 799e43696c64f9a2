"""scikit-learn estimators: any posterior behind `fit` and `predict`.

>>> from sklearn.datasets import load_iris
>>> from posteriax.sklearn import BayesianMLPClassifier
>>> X, y = load_iris(return_X_y=True)
>>> model = BayesianMLPClassifier(method="map", length={"steps": 300}, random_state=0).fit(X, y)
>>> bool(model.score(X, y) > 0.9)
True
"""

from posteriax.tabular.estimators import (
    BayesianMLPClassifier as BayesianMLPClassifier,
)
from posteriax.tabular.estimators import (
    BayesianMLPRegressor as BayesianMLPRegressor,
)
from posteriax.tabular.estimators import (
    BayesianNetClassifier as BayesianNetClassifier,
)
from posteriax.tabular.estimators import (
    BayesianNetRegressor as BayesianNetRegressor,
)

__all__ = ["BayesianMLPClassifier", "BayesianMLPRegressor", "BayesianNetClassifier", "BayesianNetRegressor"]
