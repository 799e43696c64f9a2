"""The weights of a network's first layer along the principal directions of its inputs, for samplers.

    w_k = V v_k            X'X = V D V',  V orthogonal: the weights of unit k, which X is multiplied by

Columns of a table are often correlated, and so, given the data, are the weights that multiply them: a sampler that
learns one scale for each weight has to take the small steps of the stiffest combination along all of them. The same
independent Gaussian prior holds for v, so that the posterior does not change, and a network that computes V v itself
can be sampled by any method.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from posteriax.networks.leaf import Leaf
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.posterior import Posterior
from posteriax.problem import Problem

MOST_COLUMNS = 512  # a rotation of more would cost as much as the layer itself


@dataclass(frozen=True, eq=False)
class PrincipalInputs:
    """A problem in the coordinates v.

    Args:
        original: the problem in the coordinates w, with the axes of its leaves known.
        problem: the same posterior, of v.
        index: of the leaf that is rotated, in flattening order.
        axis: of its inputs.
        directions: V, a direction in each column.
        notes: about `original`, for the trace.
    """

    original: Problem
    problem: Problem
    index: int
    axis: int
    directions: np.ndarray
    notes: tuple[str, ...]

    def in_original_weights(self, posterior: Posterior) -> DrawsPosterior:
        """A posterior of v, given by draws, as one of w."""
        source = posterior.drawn_from
        assert isinstance(source, DrawsPosterior)
        leaves, treedef = jax.tree.flatten(source.draws)
        leaves[self.index] = np.asarray(rotate(np.asarray(leaves[self.index]), self.directions, self.axis + 2))
        trace = replace(posterior.trace, notes=(*self.notes, *posterior.trace.notes))
        return DrawsPosterior(self.original, trace, jax.tree.unflatten(treedef, leaves))


def along_principal_inputs(problem: Problem, x: Any) -> PrincipalInputs | None:
    """The problem along the principal directions of the inputs; None if that would change its posterior or not help.

    It applies to a table of numbers, and a first layer whose weights have the same Gaussian prior for every column.

    >>> import equinox as eqx, posteriax as px
    >>> x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    >>> problem = px.Problem(eqx.nn.MLP(3, 1, 8, 1, key=jax.random.key(0)), px.Normal())
    >>> along_principal_inputs(problem, x).problem.leaf_names[0]
    'layers/0/weight'
    """
    if not isinstance(x, (np.ndarray, jax.Array)) or x.ndim != 2 or not 2 <= x.shape[1] <= MOST_COLUMNS:
        return None
    if problem.fixed or problem.network.batch_statistics is not None or problem.network.compute is not None:
        return None
    original, notes = problem.reading(np.asarray(x[:2]))
    net = original.network
    leaves, treedef = jax.tree.flatten(net.params)
    layers = (i for i, leaf in enumerate(net.leaf_infos) if reads_columns(leaf, x.shape[1]))
    index = next(layers, None)
    if index is None:
        return None
    (axis,) = net.leaf_infos[index].in_axes
    if not is_rotation_invariant(original.leaf_priors[index], leaves[index].shape, axis):
        return None
    values = np.asarray(x, np.float64)
    directions = np.linalg.eigh(values.T @ values)[1].astype(leaves[index].dtype)

    def apply(params: Any, inputs: Any, *, key: Any = None) -> Any:
        rotated = jax.tree.leaves(params)
        rotated[index] = rotate(rotated[index], directions, axis)
        return net.apply(jax.tree.unflatten(treedef, rotated), inputs, key=key)

    leaves[index] = rotate(leaves[index], directions.T, axis)
    turned = replace(net, apply=apply, params=jax.tree.unflatten(treedef, leaves), source=None)
    return PrincipalInputs(original, replace(original, network=turned), index, axis, directions, notes)


def reads_columns(leaf: Leaf, columns: int) -> bool:
    """Whether a leaf looks like the weights of a dense layer with `columns` inputs."""
    if leaf.axes is None or leaf.axes.lookup or leaf.axes.positions or len(leaf.axes.inputs) != 1:
        return False
    return leaf.shape[leaf.axes.inputs[0]] == columns


def is_rotation_invariant(prior: dist.Distribution, shape: tuple[int, ...], axis: int) -> bool:
    """Whether weights along an axis are independent N(0, s^2) with one s."""
    base = prior.base_dist if isinstance(prior, dist.ExpandedDistribution) else prior
    if not isinstance(base, dist.Normal) or np.any(np.asarray(base.loc) != 0):
        return False
    return bool(np.all(np.ptp(np.broadcast_to(np.asarray(base.scale), shape), axis=axis) == 0))


def rotate(leaf: Any, directions: Any, axis: int) -> Any:
    """`directions` times the leaf, along one of its axes."""
    return jnp.moveaxis(jnp.tensordot(directions, leaf, axes=(1, axis)), 0, axis)
