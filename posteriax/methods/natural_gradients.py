"""Natural gradients for Gaussian families, as an optimiser: the curvature estimate is the precision.

For a Gaussian N(mu, sigma^2) with objective L, whose derivative by log sigma is G = sigma^2 L'' - 1,

    m      <- beta m + (1 - beta) dL/dmu
    sigma^-2 <- sigma^-2 (1 + t + t^2 / 2),   t = rho G       (rho: precision rate; always positive)
    mu     <- mu - eta sigma^2 m

At t = 0 the precision is the expected curvature of the log joint, as in VOGN and IVON; the second-order term is IVON's.
For a matrix normal M + A E B' the mean is stepped by (A A') m (B B'), as K-FAC does with its two factors, and each
factor along its own natural gradient.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posteriax.families import factors


class NaturalState(NamedTuple):
    momentum: Any
    rest: Any
    step: jax.Array


def natural_gradient(
    learning_rate: Any = 0.03,
    precision_rate: Any = 0.01,
    momentum: float = 0.9,
    rest: optax.GradientTransformation | None = None,
) -> optax.GradientTransformation:
    """An optimiser for ``px.VI`` with ``q.Normal()`` (VOGN, IVON) or ``q.MatrixNormal()`` (noisy K-FAC style).

    Args:
        learning_rate: eta, in units of the posterior's own scale: a number, or an Optax schedule.
        precision_rate: rho, how fast the precision follows its one-step estimate: a number, or a schedule.
        momentum: beta, of the mean's gradient.
        rest: the optimiser of leaves of other families; Adam with 1e-3 by default.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> method = px.VI(q.Normal(), optimizer=px.natural_gradient())
    >>> posterior = px.fit(problem, (x, y), method, steps=10, key=0)
    """
    if not 0.0 <= momentum < 1.0:
        raise ValueError(f"momentum must lie in [0, 1), got {momentum}")
    if not callable(precision_rate) and not 0.0 < precision_rate <= 1.0:
        raise ValueError(f"precision_rate must lie in (0, 1], got {precision_rate}")
    others = rest or optax.adam(1e-3)
    rate, precision = (r if callable(r) else (lambda _, r=r: r) for r in (learning_rate, precision_rate))

    def init(params: Mapping[str, Any]) -> NaturalState:
        natural, other = _part(params)
        zeros = {name: jnp.zeros_like(leaf["mean"]) for name, leaf in natural.items()}
        return NaturalState(zeros, others.init(other), jnp.zeros((), jnp.int32))

    def update(gradient: Any, state: NaturalState, params: Any = None) -> tuple[Any, NaturalState]:
        natural, other = _part(params)
        eta, rho = rate(state.step), precision(state.step)
        updates: dict[str, Any] = {}
        moments: dict[str, jax.Array] = {}
        for name, leaf in natural.items():
            own = gradient[name]
            moments[name] = momentum * state.momentum[name] + (1 - momentum) * own["mean"]
            unbiased = moments[name] / (1 - momentum ** (state.step + 1))
            step = _step_matrix if "left" in leaf else _step_normal
            updates[name] = step(leaf, own, unbiased, eta, rho)
        more, rest_state = others.update({name: gradient[name] for name in other}, state.rest, other)
        updates |= more
        return {name: updates[name] for name in params}, NaturalState(moments, rest_state, state.step + 1)

    return optax.GradientTransformation(init, update)


def _part(params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The Normal and MatrixNormal leaves, and the others."""
    kinds = ({"mean", "log_scale"}, {"mean", "log_left", "left", "log_right", "right"})
    natural = {name: leaf for name, leaf in params.items() if set(leaf) in kinds}
    return natural, {name: leaf for name, leaf in params.items() if name not in natural}


def _step_normal(leaf: Any, gradient: Any, moment: jax.Array, eta: Any, rho: Any) -> dict[str, jax.Array]:
    t = rho * gradient["log_scale"]
    # half of the log of the factor that the precision grows by
    return {"mean": -eta * jnp.exp(2 * leaf["log_scale"]) * moment, "log_scale": -0.5 * jnp.log1p(t + 0.5 * t * t)}


def _step_matrix(leaf: Any, gradient: Any, moment: jax.Array, eta: Any, rho: Any) -> dict[str, jax.Array]:
    left, right = factors(leaf)
    rows, columns = left.shape[0], right.shape[0]
    matrix = moment.reshape(rows, columns)
    preconditioned = left @ (left.T @ matrix @ right) @ right.T
    updates = {"mean": -eta * preconditioned.reshape(moment.shape)}
    for side, factor, others in (("left", left, columns), ("right", right, rows)):
        log_update, update = _step_factor(factor, gradient[f"log_{side}"], gradient[side], rho / others)
        updates |= {f"log_{side}": log_update, side: update}
    return updates


def _step_factor(factor: jax.Array, by_log: jax.Array, by_lower: jax.Array, rho: Any) -> tuple[jax.Array, jax.Array]:
    """Steps of log_diagonal and S of L = diag(e^d) (I + S) (see families/triangular.py), for L <- L T.

    T is lower triangular, with -rho L' (gradient by L) below its diagonal, and on it the square root of what the
    Normal's variance is multiplied by: for a 1 x 1 factor the two are the same.
    """
    size, diagonal = factor.shape[0], jnp.diag(factor)
    below = np.tril_indices(size, -1)
    # the objective's gradient by L itself, from those by d and S
    by_factor = jnp.zeros_like(factor).at[below].set(by_lower) / diagonal[:, None]
    on_diagonal = (by_log - (by_factor * factor).sum(axis=1)) / diagonal
    natural = factor.T @ (by_factor + jnp.diag(on_diagonal))
    t = rho * jnp.diag(natural)
    turn = jnp.diag(jax.lax.rsqrt(1 + t + 0.5 * t * t)) - rho * jnp.tril(natural, -1)
    new = factor @ turn
    unit = new / jnp.diag(new)[:, None]
    return jnp.log(jnp.diag(new) / diagonal), (unit - factor / diagonal[:, None])[below]
