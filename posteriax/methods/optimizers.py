"""The optimisers of methods: plain Adam, Adam in the posterior's own units, and natural gradients.

:func:`whitened_adam`, the default of variational inference. Adam makes gradients dimensionless; its updates are then
scaled by the posterior's standard deviations, so that the same rates suit weights of any size and inputs in any unit:

    independent, sigma      mu <- mu - 0.1 sigma Adam(dmu),    log sigma <- log sigma - 0.03 Adam(dlog sigma)
    full covariance, L L'   mu <- mu - 0.1 L Adam(L' dmu),     L <- L T,  T - I = -0.03 Adam(tril(L' dL)), below the
                                                               diagonal divided by the square root of the size
    no scale of its own     w <- w - 0.003 Adam(dw)            (points, shared matrices, multiplicative noise)

All rates decay to 0 along a cosine. L' dmu and tril(L' dL) are the gradients in whitened coordinates,
e = L^-1 (w - mu), which do not change if the weights are scaled or sheared. Each family says what its parameters are:
`Family.units`.

:func:`natural_gradient`, for Gaussian families: the curvature estimate is the precision. For N(mu, sigma^2) with
objective L, whose derivative by log sigma is G = sigma^2 L'' - 1,

    m      <- beta m + (1 - beta) dL/dmu
    sigma^-2 <- sigma^-2 (1 + t + t^2 / 2),   t = rho G       (rho: precision rate; always positive)
    mu     <- mu - eta sigma^2 m

At t = 0 the precision is the expected curvature of the log joint, as in VOGN (Khan et al. 2018) and IVON (Shen et al.
2024); the second-order term is IVON's (Lin et al. 2020). A matrix normal steps by its two factors, as noisy K-FAC does
(Zhang et al. 2018). A family brings its own step: `Family.natural_step`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posteriax._internal import triangular
from posteriax.families.family import Family, Units, Variational

MEAN_RATE, SCALE_RATE, PLAIN_RATE = 0.1, 0.03, 3e-3

Learned = TypeVar("Learned")  # a pytree of what is optimised
Parameters = Mapping[str, Variational]  # the variational parameters of every block, by its name, or their gradients


class FamilyOptimizer(ABC):
    """An optimiser for :class:`px.VI` whose steps depend on the families of what it optimises."""

    @abstractmethod
    def for_families(self, families: Mapping[str, Family]) -> optax.GradientTransformation:
        """The optimiser of a dictionary of variational parameters by block, given the blocks' families."""

    @property
    def init(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} needs the families: pass it directly as the optimizer of px.VI, not of another "
            f"method or within optax.chain"
        )


def falling_adam(steps: int) -> optax.GradientTransformation:
    """Adam with a learning rate that decays to 0, so that gradient noise averages out of the result."""
    return optax.adam(optax.cosine_decay_schedule(3e-3, max(steps, 1)))


def optimize(
    optimizer: optax.GradientTransformation, gradient: Learned, params: Learned, state: optax.OptState
) -> tuple[Learned, optax.OptState]:
    """One step: new params and optimiser state."""
    updates, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, updates), state


class WhitenedState(NamedTuple):
    adam: optax.OptState
    step: jax.Array


def whitened_adam(
    families: Mapping[str, Family],
    steps: int,
    mean_rate: float = MEAN_RATE,
    scale_rate: float = SCALE_RATE,
    plain_rate: float = PLAIN_RATE,
) -> optax.GradientTransformation:
    """The optimiser for a run of `steps` steps.

    Args:
        families: of the blocks, by name: they say which parameters are means and scales.
        steps: after which the rates are 0.
        mean_rate: a mean's step, in standard deviations.
        scale_rate: a step of the log of a standard deviation.
        plain_rate: a step of a parameter without a standard deviation, in its own units.
    """
    adam = optax.scale_by_adam()
    fall = optax.cosine_decay_schedule(1.0, max(steps, 1))

    def init(params: Parameters) -> WhitenedState:
        return WhitenedState(adam.init(params), jnp.zeros((), jnp.int32))

    def update(gradient: Any, state: WhitenedState, params: Any = None) -> tuple[Any, WhitenedState]:
        units = {name: families[name].units(parameters) for name, parameters in params.items()}
        gradient = {
            name: slopes if (joint := units[name].joint) is None else _whitened_jointly(params[name], joint, slopes)
            for name, slopes in gradient.items()
        }
        directions, adam_state = adam.update(gradient, state.adam)
        left = -fall(state.step)
        rates = (left * mean_rate, left * scale_rate, left * plain_rate)
        updates = {name: _step(params[name], units[name], directions[name], *rates) for name in directions}
        return updates, WhitenedState(adam_state, state.step + 1)

    return optax.GradientTransformation(init, update)


def _step(
    parameters: Variational,
    units: Units,
    direction: Variational,
    mean_rate: jax.Array,
    scale_rate: jax.Array,
    plain_rate: jax.Array,
) -> Variational:
    if units.joint is not None:
        return _step_jointly(parameters, units.joint, direction, mean_rate, scale_rate)
    updates = {}
    for name, along in direction.items():
        if name in units.means:
            updates[name] = mean_rate * units.means[name] * along
        elif name in units.scales:
            updates[name] = scale_rate * units.scales[name] * along
        else:
            updates[name] = plain_rate * along
    return updates


def _whitened_jointly(parameters: Variational, joint: tuple[str, str, str], gradient: Variational) -> Variational:
    """Gradients in whitened coordinates: L' dmu, and the lower triangle of L' dL."""
    mean, log_diagonal, lower = joint
    factor = triangular.factor(parameters[log_diagonal], parameters[lower])
    natural = triangular.whitened_gradient(factor, gradient[log_diagonal], gradient[lower])
    return {
        mean: (factor.T @ gradient[mean].reshape(-1)).reshape(parameters[mean].shape),
        log_diagonal: jnp.diag(natural),
        lower: natural[np.tril_indices(len(factor), -1)],
    }


def _step_jointly(
    parameters: Variational,
    joint: tuple[str, str, str],
    direction: Variational,
    mean_rate: jax.Array,
    scale_rate: jax.Array,
) -> Variational:
    mean, log_diagonal, lower = joint
    factor = triangular.factor(parameters[log_diagonal], parameters[lower])
    below = np.tril_indices(len(factor), -1)
    on_diagonal = scale_rate * direction[log_diagonal]
    turn = jnp.diag(jnp.exp(on_diagonal)).at[below].set(scale_rate * triangular.rate(len(factor)) * direction[lower])
    new = factor @ turn
    return {
        mean: mean_rate * (factor @ direction[mean].reshape(-1)).reshape(parameters[mean].shape),
        log_diagonal: on_diagonal,
        lower: (new / jnp.diag(new)[:, None])[below] - parameters[lower],
    }


def whitened_size(family: Family, parameters: Variational) -> int:
    """The number of entries of the whitened gradient: a mean and a scale for every weight, or one of the two."""
    means, scales = jax.eval_shape(lambda values: ((units := family.units(values)).means, units.fisher), parameters)
    if not means:
        return sum(parameters[name].size for name in scales)
    return (2 if scales else 1) * sum(parameters[name].size for name in means)


def whiten(family: Family, parameters: Variational, gradient: Variational) -> Variational:
    """The gradient with respect to parameters of known scale, divided by the square root of their Fisher information.

    For a Gaussian posterior, an entry of 0.1 means that a mean is 0.1 standard deviations off.
    """
    units = family.units(parameters)
    if units.joint is not None:
        whitened, log_diagonal = _whitened_jointly(parameters, units.joint, gradient), units.joint[1]
        return whitened | {log_diagonal: whitened[log_diagonal] * np.float32(0.5**0.5)}
    means = {name: gradient[name] * unit for name, unit in units.means.items()}
    return means | {name: gradient[name] * np.float32(size**-0.5) for name, size in units.fisher.items()}


def plain_rate_notes(families: Mapping[str, Family], variational: Parameters) -> tuple[str, ...]:
    """The parameters that use the plain rate because their random family does not declare a unit for them."""

    def without_unit(parameters: Variational, family: Family) -> Variational:
        units = family.units(parameters)
        return {name: value for name, value in parameters.items() if units.inferred and not units.cover(name)}

    leaves: dict[tuple[str, str], list[str]] = {}
    for name, family in families.items():
        plain = family.random and jax.eval_shape(lambda values, f=family: without_unit(values, f), variational[name])
        if plain:
            leaves.setdefault((type(family).__name__, " and ".join(plain)), []).append(name)
    return tuple(
        f"{', '.join(names)}: steps of {PLAIN_RATE} for {plain}, and no check of convergence for them, "
        f"because {family} gives no `units` for them"
        for (family, plain), names in leaves.items()
    )


class NaturalState(NamedTuple):
    momentum: dict[str, jax.Array]  # of the means' gradients, by block
    rest: optax.OptState
    step: jax.Array


@dataclass(frozen=True, eq=False)
class NaturalGradient(FamilyOptimizer):
    """What :func:`natural_gradient` returns, with the same arguments."""

    learning_rate: float | optax.Schedule
    precision_rate: float | optax.Schedule
    momentum: float
    rest: optax.GradientTransformation

    def for_families(self, families: Mapping[str, Family]) -> optax.GradientTransformation:
        natural = [name for name, family in families.items() if family.natural]
        beta = self.momentum
        eta_at, rho_at = (r if callable(r) else (lambda _, r=r: r) for r in (self.learning_rate, self.precision_rate))

        def others(params: Parameters) -> dict[str, Variational]:
            return {name: parameters for name, parameters in params.items() if name not in natural}

        def init(params: Parameters) -> NaturalState:
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
    learning_rate: float | optax.Schedule = 0.03,
    precision_rate: float | optax.Schedule = 0.01,
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
    >>> method = px.VI(q.Normal(), optimizer=px.methods.natural_gradient())
    >>> posterior = px.fit(problem, (x, y), method, steps=10, key=0)
    """
    if not 0.0 <= momentum < 1.0:
        raise ValueError(f"momentum must lie in [0, 1), got {momentum}")
    if not callable(precision_rate) and not 0.0 < precision_rate <= 1.0:
        raise ValueError(f"precision_rate must lie in (0, 1], got {precision_rate}")
    return NaturalGradient(learning_rate, precision_rate, momentum, rest or optax.adam(1e-3))
