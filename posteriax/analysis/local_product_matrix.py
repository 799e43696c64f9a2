"""Local product matrices: the linear map that a network computes around one input, for every draw of its weights.

    P(x, w) = dy / dx        piecewise-linear networks:  W_L D_(L-1) W_(L-1) ... D_1 W_1,   y = P x + offset

D holds the slopes of the activations. P is the Jacobian, so this works for any network; the offset is 0 for
piecewise-linear networks without biases. (Farquhar et al. 2020, section 4)
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.typing import ArrayLike

from posteriax._internal.checks import KeyLike, as_key, check_count, check_inputs
from posteriax._internal.memory import PRODUCT_MATRIX_BYTES, as_bytes, check_size
from posteriax._internal.plot_style import Axes, Figure
from posteriax._internal.running_moments import mean_and_covariance
from posteriax.analysis.leaves import chunks_of_draws
from posteriax.analysis.product_matrix import SMALLER, ProductMatrix
from posteriax.networks.network import Params
from posteriax.networks.tracing.program import called_program
from posteriax.posterior.posterior import Posterior
from posteriax.problem import Problem


@dataclass(frozen=True, eq=False)
class LocalProductMatrix:
    """One matrix for every draw.

    Args:
        matrices: (draws, outputs, inputs), with inputs and outputs raveled.
        offsets: y - P x, (draws, outputs): the contribution of biases and curved activations.
        patterns: which activations were on, (draws, activations); empty if the network has no kinks.
    """

    matrices: np.ndarray
    offsets: np.ndarray
    patterns: np.ndarray

    @property
    def moments(self) -> ProductMatrix:
        """Mean and covariance over the draws.

        Raises:
            ValueError: if the covariance is too large.
        """
        draws, outputs, inputs = self.matrices.shape
        check_size(f"the covariance of {outputs} x {inputs} entries", outputs * inputs, SMALLER)
        mean, covariance = mean_and_covariance([self.matrices])
        return ProductMatrix(mean, covariance.reshape((outputs, inputs) * 2), draws)

    @property
    def distinct_patterns(self) -> int:
        """The number of different linear pieces that this input falls on, over draws."""
        return len(np.unique(np.packbits(self.patterns, axis=1), axis=0)) if self.patterns.size else 1

    @property
    def active_share(self) -> np.ndarray:
        """The share of draws in which each activation was on."""
        return self.patterns.mean(axis=0)

    def plot(self, axis: "Axes | None" = None, *, limit: float = 1.0) -> Figure:
        """A heat map of the correlations between entries; returns its figure."""
        return self.moments.plot(axis, limit=limit)


def local_product_matrix(
    posterior: Posterior, x: ArrayLike, draws: int = 1000, *, key: KeyLike = 0
) -> LocalProductMatrix:
    """The local product matrix at one input, for draws of a posterior.

    Args:
        posterior: from any method; the network runs as in prediction, without its own dropout.
        x: one example, without an axis of examples.
        draws: number of draws; at most those stored.
        key: for the draws.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), _ = px.data.two_moons()
    >>> net = eqx.nn.MLP(2, 2, 8, 2, use_bias=False, use_final_bias=False, key=jax.random.key(0))
    >>> posterior = px.fit(px.Problem(net, px.Categorical()), (x, y), px.VI(q.Normal()), steps=10, key=0)
    >>> local = px.analysis.local_product_matrix(posterior, x[0], draws=50)
    >>> local.matrices.shape, local.patterns.shape, bool(abs(local.offsets).max() < 1e-5)
    ((50, 2, 2), (50, 16), True)
    """
    x = jax.tree.map(lambda a: jnp.asarray(a[0]), check_inputs(jax.tree.map(lambda a: np.asarray(a)[None], x)))
    if not (isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating)):
        raise TypeError("x must be one array of real numbers to have a Jacobian")
    key, total = as_key(key), min(check_count("draws", draws), posterior.support or draws)
    outputs = math.prod(posterior.problem.output_spec(x[None]).shape)
    needed = 4 * total * outputs * x.size
    if needed > PRODUCT_MATRIX_BYTES:
        raise ValueError(
            f"{total:,} matrices of {outputs:,} x {x.size:,} would take {as_bytes(needed)} (limit "
            f"{as_bytes(PRODUCT_MATRIX_BYTES)}): use fewer draws"
        )
    parts = [_local(posterior.problem, x, chunk.network) for chunk in chunks_of_draws(posterior, key, total)]
    return LocalProductMatrix(*(np.concatenate([np.asarray(part[i]) for part in parts]) for i in range(3)))


@partial(jax.jit, static_argnums=0)
def _local(problem: Problem, x: jax.Array, params: Params) -> tuple[jax.Array, jax.Array, jax.Array]:
    def linearised(draw: Params) -> tuple[jax.Array, jax.Array, jax.Array]:
        def function(flat: jax.Array) -> jax.Array:
            return problem.outputs(draw, flat.reshape(1, *x.shape)).reshape(-1)

        flat = x.reshape(-1)
        jacobian = jax.jacrev(function)(flat)
        offset = function(flat) - jnp.matmul(jacobian, flat, precision="highest")
        return jacobian, offset, activation_pattern(function, flat)

    return jax.vmap(linearised)(params)


def activation_pattern(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """Which side of its kink each activation of a piecewise-linear network is on: one boolean for each comparison that
    `function` makes at `x`.

    ReLU and its relatives compile to comparisons: a maximum or minimum with a constant, a select, an absolute value, a
    clamp. The program is evaluated one operation at a time, and the outcome of every such comparison is recorded,
    including those inside smooth functions (softplus). Max-pooling and comparisons inside loops are not recorded.

    >>> pattern = activation_pattern(lambda x: jax.nn.relu(x - 1.0).sum(), jnp.array([0.0, 2.0, 3.0]))
    >>> pattern.tolist()
    [False, True, True]
    """
    program = jax.make_jaxpr(function)(x)
    seen: list[jax.Array] = []
    _run(program.jaxpr, program.consts, jax.tree.leaves(x), seen)
    return jnp.concatenate([flags.reshape(-1) for flags in seen]) if seen else jnp.zeros(0, bool)


def _run(
    jaxpr: core.Jaxpr, consts: Sequence[jax.Array], args: Sequence[jax.Array], seen: list[jax.Array]
) -> list[jax.Array]:
    values: dict[core.Var, jax.Array] = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(
        zip(jaxpr.invars, args, strict=True)
    )

    def read(variable: core.Var | core.Literal) -> jax.Array:
        return variable.val if isinstance(variable, core.Literal) else values[variable]

    for eqn in jaxpr.eqns:
        operands, name = [read(v) for v in eqn.invars], eqn.primitive.name
        _compare(name, operands, seen)
        called = called_program(eqn)
        if called is not None:
            results = _run(called.jaxpr, called.consts, operands, seen)
        else:
            made = eqn.primitive.bind(*operands, **eqn.params)
            results = made if eqn.primitive.multiple_results else [made]
        values |= dict(zip(eqn.outvars, results, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _compare(name: str, values: list[jax.Array], seen: list[jax.Array]) -> None:
    scalar = [jnp.ndim(value) == 0 for value in values]
    if name == "max" and sum(scalar) == 1:
        inner, bound = values if scalar[1] else values[::-1]
        seen.append(inner > bound)
    elif name == "min" and sum(scalar) == 1:
        inner, bound = values if scalar[1] else values[::-1]
        seen.append(inner < bound)
    elif name == "select_n" and values[0].dtype == bool and values[0].ndim > 0:
        seen.append(values[0])
    elif name == "abs" and jnp.issubdtype(values[0].dtype, jnp.floating):
        seen.append(values[0] > 0)
    elif name == "clamp":
        seen.append((values[1] > values[0]) & (values[1] < values[2]))
