"""Detectors of inputs from elsewhere that are made for the purpose, from one trained network.

ODIN           max_c softmax(f(x') / T)_c,  x' = x + eps sign(grad log max_c softmax(f(x) / T)_c)     Liang et al. 2018
Mahalanobis    -min_c (h(x) - m_c)' S^-1 (h(x) - m_c), of the features h before the last layer          Lee et al. 2018

m_c and S are means by class and the shared covariance of the training examples. Small values are foreign. Both are as
their authors give them without a set of foreign inputs to tune on: T = 1000, eps = 0.0014 of the pixels' range, and the
features of the last layer alone.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from posteriax.metrics import auroc
from posteriax.posterior import Posterior
from posteriax.studies.workbench import Examples, split_members
from posteriax.zoo import MLP

TEMPERATURE, STEP = 1000.0, 0.0014
RIDGE = 1e-3  # of the covariance's mean variance: units that are always 0 have none


def detectors(ensemble: Posterior, train: Examples, inside: np.ndarray, outside: np.ndarray, step: float) -> Any:
    """AUROC by detector, the mean over the members of an ensemble.

    Args:
        ensemble: of trained networks.
        train: what they were trained on.
        inside, outside: inputs as the network takes them.
        step: ODIN's, in the same units.
    """
    truth = np.repeat([0, 1], [len(inside), len(outside)])
    found: dict[str, list[float]] = {}
    for member in split_members(ensemble):
        net: Any = member.mean
        scores = {
            "ODIN": [np.asarray(odin(net, jnp.asarray(x), step)) for x in (inside, outside)],
            "Mahalanobis": [mahalanobis(net, train, x) for x in (inside, outside)],
        }
        for name, parts in scores.items():
            found.setdefault(name, []).append(float(auroc(-np.concatenate(parts), truth)))
    return {name: float(np.mean(values)) for name, values in found.items()}


@eqx.filter_jit
def odin(net: Any, x: jax.Array, step: float) -> jax.Array:
    """The largest probability at temperature 1000, after a step that makes it larger."""

    def confidence(image: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(net(image) / TEMPERATURE).max()

    def score(image: jax.Array) -> jax.Array:
        return confidence(image + step * jnp.sign(jax.grad(confidence)(image)))

    return jax.vmap(score)(x)


def mahalanobis(net: Any, train: Examples, x: np.ndarray) -> np.ndarray:
    """Minus the distance from the nearest class."""
    known, given = (np.asarray(last_features(net, jnp.asarray(a)), np.float64) for a in (train[0], x))
    classes = np.unique(train[1])
    means = np.array([known[train[1] == label].mean(axis=0) for label in classes])
    centred = known - means[np.searchsorted(classes, train[1])]
    covariance = centred.T @ centred / len(known)
    covariance += RIDGE * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    gaps = given[:, None] - means
    return -np.einsum("nci,nci->nc", gaps, np.linalg.solve(covariance, gaps.swapaxes(1, 2)).swapaxes(1, 2)).min(axis=1)


@eqx.filter_jit
def last_features(net: Any, x: jax.Array) -> jax.Array:
    """What the last layer gets."""
    where = (lambda n: n.layers[-1]) if isinstance(net, MLP) else (lambda n: n.out)
    return jax.vmap(eqx.tree_at(where, net, eqx.nn.Identity()))(x)
