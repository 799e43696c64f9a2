"""Hamiltonian Monte Carlo with the full data set: the yardstick.

    H(w, m) = -log_joint(w) + |m|^2 / 2     leapfrog for a time tau, then accept with min(1, exp(-dH)), else stay

Targets exp(log_joint) exactly. The trajectory lasts tau = pi * scale / 2 * sqrt(T), a quarter of the period of a
Gaussian prior with that scale: with no data one trajectory forgets where it came from. Where leaves have priors of
different scales s_l, their masses are (scale / s_l)^2, so that all have the same period. (METHODS C.1, trap 0.2.11)
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.checks import check_count, check_positive
from posteriax.methods.map import climb
from posteriax.methods.method import Target
from posteriax.posterior import DrawsPosterior, Posterior
from posteriax.problem import Batch, Unknowns
from posteriax.trace import Trace

STARTS = ("prior", "network", "map")


@dataclass(frozen=True, kw_only=True, eq=False)
class HMC:
    """Full-batch Hamiltonian Monte Carlo. ``px.fit(..., px.HMC(), draws=200, chains=4)``.

    Args:
        step_size: of the leapfrog, in units of the weights; adapted in warm-up if not given.
        trajectory: the time tau of one trajectory, in the same units; pi * prior scale / 2 * sqrt(T) if not given.
        warmup: transitions that are thrown away and, without `step_size`, adapt it.
        target_acceptance: what the adaptation aims at.
        jitter: every trajectory's length is drawn uniformly within this fraction of tau. A fixed length can be a
            whole number of periods of some direction, which would then never move.
        start: "prior" draws each chain's start from the prior, so that chains that agree have really met;
            "map" starts at the top of the log joint nearest to the network's own weights; "network" at those weights.
        max_leapfrogs: no trajectory takes more steps than this, whatever the adaptation tries.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons(train=50)
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.HMC(warmup=20), draws=10, chains=2, key=0)
    >>> posterior.draws.network.layers[0].weight.shape
    (2, 10, 4, 2)
    """

    step_size: float | None = None
    trajectory: float | None = None
    warmup: int = 200
    target_acceptance: float = 0.8
    jitter: float = 0.1
    start: Literal["prior", "network", "map"] = "prior"
    max_leapfrogs: int = 2000
    full_batch: ClassVar[bool] = True
    samples: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("step_size", "trajectory"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        check_count("warmup", self.warmup)
        check_count("max_leapfrogs", self.max_leapfrogs)
        if not 0.0 < self.target_acceptance < 1.0:
            raise ValueError(f"target_acceptance must lie strictly between 0 and 1, got {self.target_acceptance}")
        if not 0.0 <= self.jitter < 1.0:
            raise ValueError(f"jitter must be at least 0 and less than 1, got {self.jitter}")
        if self.start not in STARTS:
            raise ValueError(f"start must be one of {', '.join(STARTS)}, got {self.start!r}")

    def prepare(self, target: Target) -> tuple[str, ...]:
        target.problem.require_density("HMC")
        for name, leaf in zip(target.problem.leaf_names, jax.tree.leaves(target.problem.unknowns), strict=True):
            if jnp.finfo(leaf.dtype).bits < 32:
                raise TypeError(
                    f"HMC needs params of at least float32 to accept or reject: leaf {name} is {leaf.dtype}"
                )
        return ()

    def init(self, target: Target, key: jax.Array, start: Unknowns, batch: Batch) -> "State":
        import blackjax

        if self.start == "prior":
            start = target.problem.sample_prior(key)
        elif self.start == "map":
            start = climb(target, start, batch)
        chain = blackjax.hmc.init(start, lambda w: target.problem.log_joint(w, batch))
        first = self.step_size or trajectory_length(self, target) / 20
        adaptation = jax.tree.map(lambda a: jnp.asarray(a, _real(a)), _adaptation(self)[0](first))
        return State(chain, adaptation, jnp.zeros((), jnp.int32))

    def step(self, target: Target, key: jax.Array, state: "State", batch: Batch) -> tuple["State", "Info"]:
        import blackjax

        key_length, key_step = jax.random.split(key)
        warming = state.step < self.warmup
        adaptation = state.adaptation
        if self.step_size is None:
            step_size = jnp.exp(jnp.where(warming, adaptation.log_step_size, adaptation.log_step_size_avg))
        else:
            step_size = jnp.asarray(self.step_size, jnp.float32)
        stretch = 1.0 + self.jitter * jax.random.uniform(key_length, (), jnp.float32, minval=-1.0, maxval=1.0)
        length = trajectory_length(self, target) * stretch
        leapfrogs = jnp.clip(jnp.ceil(length / step_size), 1, self.max_leapfrogs).astype(jnp.int32)
        # the last bit of freedom: a step that divides the trajectory, never longer than the adapted one
        exact_step = jnp.minimum(length / leapfrogs, step_size)
        chain, result = blackjax.hmc.build_kernel()(
            key_step,
            state.chain,
            lambda w: target.problem.log_joint(w, batch),
            exact_step,
            metric(target),
            leapfrogs,
        )
        if self.step_size is None:
            update = _adaptation(self)[1](adaptation, result.acceptance_rate)
            adaptation = jax.tree.map(lambda n, o: jnp.where(warming, n, o).astype(o.dtype), update, adaptation)
        info = Info(
            acceptance=result.acceptance_rate,
            accepted=result.is_accepted,
            divergent=result.is_divergent,
            log_joint=chain.logdensity,
            step_size=exact_step,
            leapfrogs=leapfrogs,
        )
        return State(chain, adaptation, state.step + 1), info

    def draw(self, state: "State") -> Unknowns:
        return state.chain.position

    def inspect(self, trace: Trace) -> None:
        accepted, step_size = np.atleast_2d(trace["accepted"]), np.atleast_2d(trace["step_size"])
        stuck = np.asarray(~accepted.any(axis=1))
        if stuck.any():
            last = float(step_size[stuck][0, -1])
            which = f"chain {int(np.argmax(stuck))} of {len(stuck)} " if len(stuck) > 1 else ""
            raise RuntimeError(
                f"HMC {which}accepted none of {accepted.shape[1]} warm-up proposals (last step size {last:.2g}). "
                f'Try step_size={last / 10:.1g}, a longer warmup, or start="map".'
            )

    def finish(self, target: Target, states: "State", draws: Any, trace: Trace) -> Posterior:
        return DrawsPosterior(target.problem, trace, draws)


class State(NamedTuple):
    chain: Any  # BlackJAX's: position, log density, gradient
    adaptation: Any  # BlackJAX's dual averaging
    step: jax.Array


class Info(NamedTuple):
    acceptance: jax.Array
    accepted: jax.Array
    divergent: jax.Array
    log_joint: jax.Array
    step_size: jax.Array
    leapfrogs: jax.Array


def reference_scale(target: Target) -> float:
    """One scale for all weights: the geometric mean of their priors' scales."""
    sizes = [leaf.size for leaf in jax.tree.leaves(target.problem.unknowns)]
    logs = [math.log(scale) for scale in target.problem.leaf_scales]
    return math.exp(float(np.average(logs, weights=sizes)))


def trajectory_length(method: HMC, target: Target) -> float:
    if method.trajectory is not None:
        return method.trajectory
    return math.pi / 2 * reference_scale(target) * math.sqrt(target.problem.temperature)


def metric(target: Target) -> Any:
    """BlackJAX's metric with a mass per leaf; its own diagonal one flattens all leaves into a vector at every step."""
    from blackjax.mcmc.metrics import Metric

    scale = reference_scale(target)
    ratios = [leaf_scale / scale for leaf_scale in target.problem.leaf_scales]

    def sample_momentum(key: jax.Array, position: Any) -> Any:
        leaves, treedef = jax.tree.flatten(position)
        keys = jax.random.split(key, len(leaves))
        momenta = [
            jax.random.normal(k, leaf.shape, leaf.dtype) / ratio
            for k, leaf, ratio in zip(keys, leaves, ratios, strict=True)
        ]
        return jax.tree.unflatten(treedef, momenta)

    def kinetic_energy(momentum: Any, position: Any = None) -> Any:
        leaves = jax.tree.leaves(momentum)
        return 0.5 * sum(ratio**2 * jnp.vdot(leaf, leaf) for leaf, ratio in zip(leaves, ratios, strict=True))

    def unused(*_: Any, **__: Any) -> Any:
        raise TypeError("fixed-length HMC neither looks for U-turns nor rescales")

    return Metric(sample_momentum, kinetic_energy, unused, unused)


def _real(value: Any) -> Any:
    """float32 for what is real, whatever the precision of the weights: a step size needs no more."""
    return jnp.float32 if jnp.issubdtype(jnp.result_type(value), jnp.floating) else jnp.int32


def _adaptation(method: HMC) -> Any:
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return dual_averaging_adaptation(method.target_acceptance)
