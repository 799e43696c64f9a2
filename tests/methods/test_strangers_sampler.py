"""A sampler that the package does not know, in one file: it works wherever the package's own samplers do."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import known
import numpy as np
import pytest

import posteriax as px
from posteriax.methods import Kernel, Method, RunLength


@dataclass(frozen=True)
class RandomWalk(Method):
    """Random-walk Metropolis (Metropolis et al. 1953) with Gaussian proposals of standard deviation `scale`."""

    scale: float
    warmup: int = 500
    thin: int = 20
    samples: ClassVar[bool] = True
    full_batch: ClassVar[bool] = True
    arviz_names: ClassVar[dict[str, str]] = {"log_joint": "lp", "acceptance": "acceptance_rate"}

    def run_length(self, steps_per_epoch):
        return RunLength(self.warmup, self.thin)

    def bind(self, task):
        return RandomWalkKernel(method=self, task=task, notes=("a random walk",))


class RandomWalkKernel(Kernel):
    def init(self, key, start, batch):
        return State(start, self.problem.log_joint(start, batch))

    def step(self, key, state, batch):
        key_move, key_accept = jax.random.split(key)
        leaves, treedef = jax.tree.flatten(state.position)
        keys = jax.random.split(key_move, len(leaves))
        moves = [self.method.scale * jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
        proposal = jax.tree.unflatten(treedef, [leaf + move for leaf, move in zip(leaves, moves, strict=True)])
        new = State(proposal, self.problem.log_joint(proposal, batch))
        acceptance = jnp.minimum(1.0, jnp.exp(new.log_joint - state.log_joint))
        accepted = jax.random.uniform(key_accept) < acceptance
        state = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, state)
        return state, Info(state.log_joint, acceptance)

    def draw(self, state):
        return state.position


class State(NamedTuple):
    position: Any
    log_joint: jax.Array


class Info(NamedTuple):
    log_joint: jax.Array
    acceptance: jax.Array


def test_data_are_not_split_for_a_sampler_that_does_not_sum_over_devices(two_devices):
    """Every device would sample the posterior of its own part of the data."""
    exact = known.linear_regression()
    mesh = px.distributed.mesh(data=2)
    with pytest.raises(ValueError, match="RandomWalk does not sum its log joint over devices"):
        px.fit(exact.problem, exact.data, RandomWalk(scale=0.1), draws=5, mesh=mesh, key=0)


@pytest.mark.slow
def test_a_strangers_sampler_works_everywhere(tmp_path):
    exact, method = known.linear_regression(), RandomWalk(scale=0.1)
    fit = lambda how, draws, **more: px.fit(exact.problem, exact.data, how, draws=draws, key=0, **more)  # noqa: E731
    posterior = fit(method, 1000, chains=2)
    known.check_draws(np.asarray(posterior.draws.network["w"])[..., 0], exact)
    fit(method, 300, chains=2, checkpoint=tmp_path / "run")
    resumed = fit(px.Ensemble(method, 2), 1000, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(resumed.draws.network["w"], posterior.draws.network["w"])
    posterior.save(tmp_path / "walk")
    loaded = px.load(tmp_path / "walk", exact.problem.network)
    assert str(loaded.diagnose(exact.data[0])) == str(posterior.diagnose(exact.data[0]))
    assert "acceptance" in str(loaded.diagnose())
    assert set(loaded.to_arviz().sample_stats) == {"lp", "acceptance_rate"}
    assert "walk" in str(px.compare({"walk": loaded, "twice": posterior}, exact.data, reference="twice"))
