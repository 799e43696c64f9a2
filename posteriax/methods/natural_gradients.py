"""Natural gradients for Gaussian families, as an optimiser: the curvature estimate is the precision.

For a Gaussian N(mu, sigma^2) with objective L, whose derivative by log sigma is G = sigma^2 L'' - 1,

    m      <- beta m + (1 - beta) dL/dmu
    sigma^-2 <- sigma^-2 (1 + t + t^2 / 2),   t = rho G       (rho: precision rate; always positive)
    mu     <- mu - eta sigma^2 m

At t = 0 the precision is the expected curvature of the log joint, as in VOGN (Khan et al. 2018) and IVON (Shen et al.
2024); the second-order term is IVON's (Lin et al. 2020). A matrix normal steps by its two factors, as noisy K-FAC does
(Zhang et al. 2018). A family brings its own step: `Family.natural_step`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from posteriax.families import Family
from posteriax.methods.optimizer import FamilyOptimizer


class NaturalState(NamedTuple):
    momentum: Any
    rest: Any
    step: jax.Array


@dataclass(frozen=True, eq=False)
class NaturalGradient(FamilyOptimizer):
    """What :func:`natural_gradient` returns, with the same arguments."""

    learning_rate: Any
    precision_rate: Any
    momentum: float
    rest: optax.GradientTransformation

    def for_families(self, families: Mapping[str, Family]) -> optax.GradientTransformation:
        natural = [name for name, family in families.items() if family.natural]
        beta = self.momentum
        eta_at, rho_at = (r if callable(r) else (lambda _, r=r: r) for r in (self.learning_rate, self.precision_rate))

        def others(params: Mapping[str, Any]) -> dict[str, Any]:
            return {name: own for name, own in params.items() if name not in natural}

        def init(params: Mapping[str, Any]) -> NaturalState:
            zeros = {name: jnp.zeros_like(params[name]["mean"]) for name in natural}
            return NaturalState(zeros, self.rest.init(others(params)), jnp.zeros((), jnp.int32))

        def update(gradient: Any, state: NaturalState, params: Any = None) -> tuple[Any, NaturalState]:
            eta, rho = eta_at(state.step), rho_at(state.step)
            updates, rest = self.rest.update(others(gradient), state.rest, others(params))
            moments: dict[str, jax.Array] = {}
            for name in natural:
                moments[name] = beta * state.momentum[name] + (1 - beta) * gradient[name]["mean"]
                averaged = {**gradient[name], "mean": moments[name] / (1 - beta ** (state.step + 1))}
                updates[name] = families[name].natural_step(params[name], averaged, eta, rho)
            return {name: updates[name] for name in params}, NaturalState(moments, rest, state.step + 1)

        return optax.GradientTransformation(init, update)


def natural_gradient(
    learning_rate: Any = 0.03,
    precision_rate: Any = 0.01,
    momentum: float = 0.9,
    rest: optax.GradientTransformation | None = None,
) -> NaturalGradient:
    """An optimiser for ``px.VI`` with ``q.Normal()`` (VOGN, IVON) or ``q.MatrixNormal()`` (noisy K-FAC style).

    Args:
        learning_rate: eta, in units of the posterior's own scale: a number, or an Optax schedule.
        precision_rate: rho, how fast the precision follows its one-step estimate: a number, or a schedule.
        momentum: beta, of the mean's gradient.
        rest: the optimiser of leaves whose family has no natural step; Adam with 1e-3 by default.

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
    return NaturalGradient(learning_rate, precision_rate, momentum, rest or optax.adam(1e-3))
