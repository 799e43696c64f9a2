"""Masses: the shape of the posterior that a sampler knows, learned in warm-up from draws and gradients, or the prior's.

    "adapted"    M^-1 = diag(v)                         one mass for every weight
    "low-rank"   M^-1 = S (I + U (Lambda - I) U') S     and a correction along the 32 directions that need it most
    "dense"      the same along all directions that the states of the warm-up span
    "prior"      the prior's, not learned

Both are minimisers of the Fisher divergence between a standard normal and the density in the units of the masses, as in
nutpie (Seyboldt et al. 2026). For a mass each, with the gradient g of the log joint,

    v_i = sqrt( Var[w_i] / Var[g_i] )

For a Gaussian, Var[g_i] is one over the variance of w_i given all others, so v_i is the geometric mean of its marginal
and its conditional variance. Gradients are as informative about scale as draws, so a dozen states already give usable
values, and nothing has to be shrunk towards a constant that may be far too large for a posterior much narrower than its
prior. Both variances are averages that count state t with the weight t^3: early states, far from the bulk, are soon
forgotten.

With correlations, in units of the scales S = diag(sqrt(v)), it is the geometric mean of the covariance of draws and the
inverse covariance of gradients, of the later half of all states, each shrunk as if p more states had been seen:

    C = (n Cov[w] + p I) / (n + p),    G = (n Cov[g] + p I) / (n + p),    I + U (Lambda - I) U' = C # G^-1

n states tell something about the 2 n directions that their draws and gradients span, and nothing about the others. With
d weights, p = 5 d / (n + d): 5 if the states are few, nothing in the end.

Masses from the prior: a leaf whose prior has scale s_l gets the mass (scale / s_l)^2, with one common scale, so that
under the priors alone all leaves oscillate with the same period. A prior with correlated weights and covariance C gives
its leaf the mass matrix scale^2 C^-1, so that the same holds in every direction, however wide or narrow the prior is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from posteriax._internal.running_moments import add_value
from posteriax.methods.ensemble import same_for_all_members
from posteriax.priors.prior import Whitening
from posteriax.problem import Problem

if TYPE_CHECKING:
    from blackjax.mcmc.metrics import LowRankInverseMassMatrix, Metric

Masses = Literal["adapted", "low-rank", "dense", "prior"]
MASSES = ("adapted", "low-rank", "dense", "prior")

POWER = 3.0  # of a state's number, as its weight in the running moments
FEWEST = 10  # states before the estimate replaces the first guess
MOST_FOR_DENSE = 2000  # weights: up to so many, masses are dense by default
LOW_RANK = 32  # directions
UNKNOWN_STATES = 5.0
FEWEST_FOR_CORRELATIONS = 20  # states
GROWTH = 1.5  # of the number of states from one estimate of the correlations to the next
SETTLED = 0.85  # of the warm-up, after which they stay and only the step size adapts
MOST_STATES = 256  # in an estimate of low rank
MOST_NUMBERS = 2**25  # in the states that are kept


def check_masses(masses: str | None, step_size: float | None = None) -> None:
    """Raise for an unknown kind, or one that is learned beside a step size that is in units of the prior."""
    if masses is not None and masses not in MASSES:
        raise ValueError(f"masses must be one of {', '.join(MASSES)}, got {masses!r}")
    if step_size is not None and masses not in (None, "prior"):
        raise ValueError(f'a step_size is in units of the priors\' scales: use masses="prior" with it, not {masses!r}')


class Diagonal(NamedTuple):
    """Running moments of draws and gradients, each with the weights' shape, and the variances in use."""

    variances: PyTree
    states: jax.Array  # how many
    mean: PyTree
    variance: PyTree
    gradient_mean: PyTree
    gradient_variance: PyTree


class Correlated(NamedTuple):
    """The inverse masses in use, and what they are learned from."""

    inverse: "LowRankInverseMassMatrix"
    stretch: jax.Array
    diagonal: Diagonal  # of all states
    positions: jax.Array  # (states, weights): the latest, in a ring
    gradients: jax.Array  # the same
    recorded: jax.Array  # how many


@dataclass(frozen=True, kw_only=True)
class LearnedMasses:
    """How masses are learned in a warm-up of a given length; made by :func:`learned_masses`.

    Args:
        rank: how many directions are corrected for correlations; 0 for a mass each.
        stride: steps from one recorded state to the next.
        states: how many recorded states are kept.
        updates: after which steps of the warm-up the correlations are estimated.
    """

    rank: int = 0
    stride: int = 1
    states: int = 0
    updates: tuple[int, ...] = ()

    def start(self, variances: PyTree) -> Diagonal | Correlated:
        """No state seen yet; `variances` are a first guess."""
        if not self.rank:
            return start_diagonal(variances)
        from blackjax.mcmc.metrics import LowRankInverseMassMatrix

        variances = ravel_pytree(variances)[0]
        size, dtype = variances.size, variances.dtype
        nowhere = jnp.zeros((size, self.rank), dtype), jnp.ones((self.rank,), dtype)
        ring = jnp.zeros((self.states, size), dtype)
        return Correlated(
            inverse=LowRankInverseMassMatrix(jnp.sqrt(variances), *nowhere),
            stretch=jnp.ones((), dtype),
            diagonal=start_diagonal(variances),
            positions=ring,
            gradients=ring,
            recorded=jnp.zeros((), jnp.int32),
        )

    def renews(self, step: jax.Array) -> jax.Array:
        """Whether the masses change at once after this step, so that the step size has to be found again."""
        if not self.updates:
            return jnp.zeros((), bool)
        return jnp.isin(same_for_all_members(step) + 1, jnp.array(self.updates, jnp.int32))

    def learn(
        self, masses: Diagonal | Correlated, step: jax.Array, position: PyTree, gradient: PyTree
    ) -> Diagonal | Correlated:
        """The masses with one more state of the warm-up."""
        if isinstance(masses, Diagonal):
            return learn(masses, position, gradient)
        position, gradient = ravel_pytree(position)[0], ravel_pytree(gradient)[0]
        diagonal = learn(masses.diagonal, position, gradient)
        record, row = step % self.stride == 0, masses.recorded % self.states
        add = lambda ring, value: jnp.where(record, ring.at[row].set(value), ring)  # noqa: E731
        # until the first estimate, a mass each
        scales_only = step < (self.updates[0] if self.updates else np.iinfo(np.int32).max)
        sigma = jnp.where(scales_only, jnp.sqrt(diagonal.variances), masses.inverse.sigma)
        masses = Correlated(
            inverse=masses.inverse._replace(sigma=sigma),
            stretch=jnp.where(scales_only, stretch(diagonal), masses.stretch),
            diagonal=diagonal,
            positions=add(masses.positions, position),
            gradients=add(masses.gradients, gradient),
            recorded=masses.recorded + record.astype(jnp.int32),
        )
        return jax.lax.cond(self.renews(step), estimate_correlations, lambda unchanged: unchanged, masses)


def learned_masses(kind: Masses | None, problem: Problem, warmup: int) -> LearnedMasses | None:
    """How masses of this kind, or of the default kind, are learned; None if they are the prior's."""
    size = sum(leaf.size for leaf in jax.tree.leaves(problem.latents))
    if kind is None:
        kind = "dense" if size <= MOST_FOR_DENSE else "adapted"
    if kind == "prior":
        return None
    if kind == "adapted":
        return LearnedMasses()
    step, updates = SETTLED * warmup, []
    while step >= FEWEST_FOR_CORRELATIONS:
        updates.append(int(step))
        step /= GROWTH
    half = max(int(SETTLED * warmup) // 2, 1)
    states = max(1, min(half, MOST_STATES if kind == "low-rank" else half, MOST_NUMBERS // size))
    rank = min(size, LOW_RANK if kind == "low-rank" else 2 * states)
    return LearnedMasses(rank=rank, stride=-(-half // states), states=states, updates=tuple(reversed(updates)))


def inverse_masses(masses: Diagonal | Correlated | None, position: jax.Array) -> "jax.Array | LowRankInverseMassMatrix":
    """What BlackJAX's kernels take as the inverse mass matrix of a standardised vector; None stands for the priors'."""
    if masses is None:
        return jnp.ones_like(position)
    return masses.variances if isinstance(masses, Diagonal) else masses.inverse


def stretch_of(masses: Diagonal | Correlated | None) -> jax.Array:
    """How much longer than in these units a trajectory has to be, because of correlations they do not know."""
    if masses is None:
        return jnp.ones(())
    return stretch(masses) if isinstance(masses, Diagonal) else masses.stretch


def first_step_size(problem: Problem) -> float:
    """The step size at which a warm-up begins: this scaling keeps the acceptance rate constant in high dimensions."""
    return sum(leaf.size for leaf in jax.tree.leaves(problem.latents)) ** -0.25


def metric_of(masses: Diagonal | Correlated) -> "Metric":
    """The kinetic energy of Hamiltonian dynamics with these masses."""
    from blackjax.mcmc.metrics import gaussian_euclidean_low_rank

    if isinstance(masses, Diagonal):
        return diagonal_metric(masses.variances)
    sigma, directions, values = masses.inverse

    def kinetic_energy(momentum: PyTree, position: PyTree = None) -> jax.Array:
        # p' M^-1 p / 2 as a sum of squares, whose gradient takes two products with U; that of BlackJAX's takes four
        scaled = sigma * ravel_pytree(momentum)[0]
        along = scaled @ directions
        return 0.5 * (jnp.vdot(scaled, scaled) + jnp.vdot(along, (values - 1.0) * along))

    blackjax_metric = gaussian_euclidean_low_rank(*masses.inverse)

    def sample_momentum(key: jax.Array, position: PyTree) -> PyTree:
        # BlackJAX draws in double precision under x64
        drawn = blackjax_metric.sample_momentum(key, position)
        return jax.tree.map(lambda p, at: p.astype(at.dtype), drawn, position)

    return blackjax_metric._replace(kinetic_energy=kinetic_energy, sample_momentum=sample_momentum)


def start_diagonal(variances: PyTree) -> Diagonal:
    """No state seen yet; `variances` are a first guess."""
    zeros = jax.tree.map(jnp.zeros_like, variances)
    return Diagonal(variances, jnp.zeros((), jnp.float32), zeros, zeros, zeros, zeros)


def learn(diagonal: Diagonal, position: PyTree, gradient: PyTree) -> Diagonal:
    """Update the moments with one more state of the warm-up."""
    count = diagonal.states + 1
    share = (POWER + 1) / (count + POWER)
    mean, variance = add_value(diagonal.mean, diagonal.variance, position, share)
    gradient_mean, gradient_variance = add_value(diagonal.gradient_mean, diagonal.gradient_variance, gradient, share)
    estimate = partial(_estimate, count >= FEWEST)
    variances = jax.tree.map(estimate, diagonal.variances, variance, gradient_variance)
    return Diagonal(variances, count, mean, variance, gradient_mean, gradient_variance)


def stretch(diagonal: Diagonal) -> jax.Array:
    """How much wider than its scales the posterior is because of correlations: 1 for independent weights, else more.

        sqrt( sum r_i^2 / sum r_i ),    r_i = Var[w_i] / v_i

    A trajectory has to be longer by about this to cross the posterior.
    """
    ratios = jax.tree.leaves(jax.tree.map(jnp.divide, diagonal.variance, diagonal.variances))
    squares, total = (sum(jnp.sum(ratio**power) for ratio in ratios) for power in (2, 1))
    known = (diagonal.states >= FEWEST) & (total > 0)
    return jnp.where(known, jnp.sqrt(jnp.maximum(squares / jnp.where(known, total, 1.0), 1.0)), 1.0)


def _estimate(
    enough: jax.Array, current: jax.Array, draw_variance: jax.Array, gradient_variance: jax.Array
) -> jax.Array:
    """The estimate where there is one; a weight that never moved, or whose gradient never changed, keeps its scale."""
    usable = enough & (draw_variance > 0) & (gradient_variance > 0)
    estimate = jnp.sqrt(draw_variance) / jnp.sqrt(jnp.where(usable, gradient_variance, 1.0))  # a ratio could overflow
    usable &= jnp.isfinite(estimate) & (estimate > 0)
    return jnp.where(usable, estimate, current).astype(current.dtype)


def estimate_correlations(masses: Correlated) -> Correlated:
    """The masses from the later half of all states; unchanged if that is not finite."""
    states, size = masses.positions.shape
    number = masses.recorded - 1 - (masses.recorded - 1 - jnp.arange(states)) % states  # of the state in each row
    late = (number >= masses.recorded // 2)[:, None]
    count = late.sum().astype(masses.positions.dtype)

    def centred(values: jax.Array) -> jax.Array:
        return jnp.where(late, values - jnp.where(late, values, 0.0).sum(axis=0) / count, 0.0)

    positions, gradients = centred(masses.positions), centred(masses.gradients)
    sigma = (jnp.square(positions).sum(axis=0) / jnp.square(gradients).sum(axis=0)) ** 0.25
    usable = jnp.isfinite(sigma) & (sigma > 0)
    sigma = jnp.where(usable, sigma, jnp.sqrt(masses.diagonal.variances))
    positions, gradients = positions / sigma, gradients * sigma

    basis = jnp.eye(size, dtype=sigma.dtype)
    if 2 * states < size:
        basis = jnp.linalg.qr(jnp.concatenate([positions, gradients]).T)[0]

    more = UNKNOWN_STATES * size / (count + size)

    def shrunk_covariance(values: jax.Array) -> jax.Array:
        within = values @ basis
        return (within.T @ within + more * jnp.eye(basis.shape[1])) / (count + more)

    mean = geometric_mean_with_inverse(shrunk_covariance(positions), shrunk_covariance(gradients))
    values, vectors = jnp.linalg.eigh(mean)
    values = _positive(values)
    rank = masses.inverse.lam.size
    strongest = jnp.argsort(-jnp.abs(jnp.log(values)))[:rank]
    values, directions = values[strongest], basis @ vectors[:, strongest]

    # what is left of the scales in the new units, of which a trajectory has to cross the widest
    left = positions + ((positions @ directions) * (values**-0.5 - 1.0)) @ directions.T
    ratios = jnp.square(left).sum(axis=0) / count
    missing = rank - values.size
    estimate = masses._replace(
        inverse=masses.inverse._replace(
            sigma=sigma,
            U=jnp.pad(directions, ((0, 0), (0, missing))),
            lam=jnp.pad(values, (0, missing), constant_values=1.0),
        ),
        stretch=jnp.sqrt(jnp.maximum(jnp.square(ratios).sum() / ratios.sum(), 1.0)),
    )
    finite = jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves((estimate.inverse, estimate.stretch))])
    return jax.tree.map(lambda new, old: jnp.where(finite.all(), new, old).astype(old.dtype), estimate, masses)


def geometric_mean_with_inverse(c: jax.Array, g: jax.Array) -> jax.Array:
    """C # G^-1 = G^-1/2 (G^1/2 C G^1/2)^1/2 G^-1/2: the positive definite X with X G X = C.

    >>> geometric_mean_with_inverse(jnp.diag(jnp.array([4.0, 1.0])), jnp.diag(jnp.array([1.0, 16.0]))).round(3).tolist()
    [[2.0, 0.0], [0.0, 0.25]]
    """
    values, vectors = jnp.linalg.eigh(g)
    root = jnp.sqrt(_positive(values))
    inner = root[:, None] * (vectors.T @ c @ vectors) * root
    values, inner_vectors = jnp.linalg.eigh((inner + inner.T) / 2)
    half = vectors @ (inner_vectors * _positive(values) ** 0.25 / root[:, None])
    return half @ half.T


def _positive(eigenvalues: jax.Array) -> jax.Array:
    """Eigenvalues of a positive definite matrix, of which rounding may have made some negative."""
    return jnp.maximum(eigenvalues, jnp.finfo(eigenvalues.dtype).eps * eigenvalues.max())


def reference_scale(problem: Problem) -> float:
    """One scale for all weights: the geometric mean of their priors' scales."""
    sizes = [leaf.size for leaf in jax.tree.leaves(problem.latents)]
    logs = [math.log(scale) for scale in problem.leaf_scales]
    return math.exp(float(np.average(logs, weights=sizes)))


def prior_metric(problem: Problem) -> "Metric":
    """A mass, or a mass matrix, for every leaf, from its prior."""
    scale = reference_scale(problem)
    return _metric(
        [
            _matrix_mass(prior, scale) if isinstance(prior, Whitening) else _scalar_mass(leaf_scale / scale)
            for prior, leaf_scale in zip(problem.leaf_priors, problem.leaf_scales, strict=True)
        ]
    )


def diagonal_metric(variances: PyTree) -> "Metric":
    """A mass of 1 / variance for every weight."""
    return _metric([_entry_masses(leaf) for leaf in jax.tree.leaves(variances)])


def _metric(masses: list["_Mass"]) -> "Metric":
    """BlackJAX's metric, leaf by leaf; its own diagonal one flattens all leaves into a vector at every step."""
    from blackjax.mcmc.metrics import Metric

    def sample_momentum(key: jax.Array, position: PyTree) -> PyTree:
        leaves, treedef = jax.tree.flatten(position)
        keys = jax.random.split(key, len(leaves))
        momenta = [
            mass.momentum(jax.random.normal(k, leaf.shape, leaf.dtype))
            for k, leaf, mass in zip(keys, leaves, masses, strict=True)
        ]
        return jax.tree.unflatten(treedef, momenta)

    def kinetic_energy(momentum: PyTree, position: PyTree = None) -> jax.Array | float:
        leaves = jax.tree.leaves(momentum)
        return 0.5 * sum(mass.square(leaf) for leaf, mass in zip(leaves, masses, strict=True))

    def unused(*_: object, **__: object) -> NoReturn:
        raise TypeError("fixed-length HMC neither looks for U-turns nor rescales")

    return Metric(sample_momentum, kinetic_energy, unused, unused)


class _Mass(NamedTuple):
    """The mass M of one leaf."""

    momentum: Callable[[jax.Array], jax.Array]  # M^1/2 noise
    square: Callable[[jax.Array], jax.Array]  # p' M^-1 p


def _scalar_mass(ratio: float) -> _Mass:
    return _Mass(lambda noise: noise / ratio, lambda p: ratio**2 * jnp.vdot(p, p))


def _entry_masses(variances: jax.Array) -> _Mass:
    return _Mass(lambda noise: noise * jax.lax.rsqrt(variances), lambda p: jnp.vdot(p, variances * p))


def _matrix_mass(prior: Whitening, scale: float) -> _Mass:
    def square(p: jax.Array) -> jax.Array:
        speed = prior.unwhiten(p) / scale
        return jnp.vdot(speed, speed)

    return _Mass(lambda noise: scale * prior.whiten(noise), square)
