"""Variational posteriors set by hand, for analyses with a known answer."""

import jax
import numpy as np

import posteriax as px
from posteriax import families as q
from posteriax.posterior import DrawsPosterior, VariationalPosterior
from posteriax.posterior.trace import Trace
from posteriax.problem import Latents


def variational(net, likelihood=None, family=None, *, members=1, mean=1.0, scale=1.0, seed=0, **settings):
    """Random means and parameters around the family's own start."""
    problem = px.Problem(net, likelihood or px.Categorical(), **settings)
    rng, families, parameters = np.random.default_rng(seed), {}, {}
    for leaf in problem.leaf_infos:
        own = (family or q.Normal()).for_leaf(leaf)
        families[leaf.path], parameters[leaf.path] = own, {}
        # NumPy's noise: JAX would compile a program for every shape
        value = (mean * rng.normal(size=(members, *leaf.shape))).astype(np.float32)
        begun = own.init(jax.random.key(seed), value[0], leaf)
        for name, array in begun.items():
            noise = (scale * rng.normal(size=(members, *array.shape))).astype(np.float32)
            parameters[leaf.path][name] = value if name == "mean" else np.asarray(array) + noise
    return VariationalPosterior(problem, Trace({}, ()), families, parameters)


def drawn(net, params, likelihood=None):
    """A posterior of the draws given: params with two leading axes, (chains, draws)."""
    problem = px.Problem(net, likelihood or px.Categorical())
    return DrawsPosterior(problem, Trace({}, ()), Latents(jax.tree.map(np.asarray, params), {}))
