"""How fast samplers are: gradients per second, and effective draws per second of what the network predicts.

Two chains, each on its own device, sample an MLP 2-29-29-2 (1,017 weights) on 500 points of two moons. After its
warm-up every sampler takes a block of draws in turn. A leapfrog is one gradient; a step of MCLMC, by McLachlan's
integrator, is two.

    effective draws / s = bulk ESS of all blocks / their seconds      of the class probabilities at 100 test points

BlackJAX's samplers are called directly in a ``lax.scan``, with the settings and from the states that posteriax's own
warm-up has found, so that the ratio is what posteriax adds. NumPyro's do their own warm-up; it has no MCLMC.
"""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding, PartitionSpec
from rich.table import Table

import posteriax as px
from benchmarks.driver import Driver
from benchmarks.leapfrog import SIZES
from benchmarks.mlp import mlp, mlp_weights
from benchmarks.timing import interleave, make_table, ratios_of, timed
from posteriax.data.batches import full_batch
from posteriax.diagnostics.chains import ess_bulk
from posteriax.methods.sampling.masses import Diagonal, stretch_of
from posteriax.run.layout import members_mesh
from posteriax.run.program import over_members

CHAINS = 2
METHODS: dict[str, Any] = {"HMC": px.HMC(), "NUTS": px.NUTS(), "MCLMC": px.MCLMC()}
DRAWS = {"HMC": 10, "NUTS": 5, "MCLMC": 50}  # of every chain in a block; whole blocks make up the warm-up, too
Density = Callable[[jax.Array], jax.Array]  # of all weights as one vector


class DrawBlock(NamedTuple):
    """Some draws of all chains, and their cost."""

    draws: np.ndarray  # (chains, draws, weights)
    gradients: int  # of all chains
    seconds: float


class Sampler(NamedTuple):
    """A sampler after its warm-up, with its duration; `block` takes more draws."""

    kind: str
    warmup: float
    block: Callable[[], DrawBlock]


class Result(NamedTuple):
    """What a sampler did, and the effective draws of every probability it predicts."""

    sampler: Sampler
    blocks: list[DrawBlock]
    effective: np.ndarray

    @property
    def seconds_per_gradient(self) -> np.ndarray:
        return np.array([block.seconds / block.gradients for block in self.blocks])


def report(rounds: int) -> list[Table]:
    return [table(run_sampling(rounds))]


def run_sampling(rounds: int) -> dict[str, Result]:
    """This many blocks of each sampler, in turn."""
    (x, y), (x_test, _) = px.data.two_moons(train=500, test=100)
    return in_turn(make_samplers(x, y), rounds, x_test)


def in_turn(samplers: dict[str, Sampler], rounds: int, x: Any) -> dict[str, Result]:
    """This many blocks of each sampler, and the effective draws of the probabilities at x."""
    blocks: dict[str, list[DrawBlock]] = {name: [] for name in samplers}

    def take(name: str) -> float:
        blocks[name].append(samplers[name].block())
        return blocks[name][-1].seconds

    interleave({name: partial(take, name) for name in samplers}, rounds)
    results = {}
    for name, sampler in samplers.items():
        kept = blocks[name][1:]  # the first round is discarded
        outputs = probabilities(np.concatenate([block.draws for block in kept], axis=1), x)
        results[name] = Result(sampler, kept, ess_bulk(outputs))
    return results


def table(results: dict[str, Result]) -> Table:
    """A row for each sampler."""
    title = "Two chains, MLP 2-29-29-2 on 500 points; effective draws of its predictions: median, least"
    speed = ("gradients/s", "over BlackJAX", "10 % to 90 %")
    made = make_table(title, (*speed, "warm-up, s", "draws", "in s", "effective", "effective/s"))
    for name, (sampler, blocks, effective) in results.items():
        seconds_per_gradient = results[name].seconds_per_gradient
        ratios = ratios_of(seconds_per_gradient, results[f"BlackJAX {sampler.kind}"].seconds_per_gradient)
        warmup = "" if math.isnan(sampler.warmup) else f"{sampler.warmup:.1f}"
        draws, seconds = CHAINS * DRAWS[sampler.kind] * len(blocks), sum(block.seconds for block in blocks)
        median, least = np.median(effective), effective.min()
        shown = f"{median:.0f}, {least:.0f}", f"{median / seconds:.2g}, {least / seconds:.2g}"
        gradients = f"{1 / np.median(seconds_per_gradient):,.0f}"
        made.add_row(name, gradients, *ratios, warmup, str(draws), f"{seconds:.1f}", *shown)
    return made


def probabilities(draws: np.ndarray, x: Any) -> np.ndarray:
    """What the network predicts at x with each draw of the weights: (chains, draws, points, classes)."""
    unravel = ravel_pytree(mlp_weights(SIZES))[1]
    predict = jax.vmap(jax.vmap(lambda vector: jax.nn.softmax(mlp(unravel(vector), jnp.asarray(x)))))
    return np.asarray(jax.jit(predict)(jnp.asarray(draws)))


def make_samplers(x: Any, y: Any) -> dict[str, Sampler]:
    """All samplers, warmed up."""
    problem = px.Problem((mlp, mlp_weights(SIZES)), px.Categorical())
    batch, unravel = jax.tree.map(jnp.asarray, full_batch((x, y))), ravel_pytree(problem.latents)[1]

    def density(vector: jax.Array) -> jax.Array:
        return problem.log_likelihood(unravel(vector), batch) + problem.log_prior(unravel(vector))

    samplers = {}
    for kind in METHODS:
        samplers[f"posteriax {kind}"], states = posteriax_sampler(problem, x, y, kind)
        samplers[f"BlackJAX {kind}"] = blackjax_sampler(density, kind, states)
        if kind != "MCLMC":
            samplers[f"NumPyro {kind}"] = numpyro_sampler(density, kind)
    return samplers


def warm_up(kind: str, block: Callable[[], DrawBlock]) -> Sampler:
    count = METHODS[kind].warmup // (DRAWS[kind] * METHODS[kind].thin)
    return Sampler(kind, sum(block().seconds for _ in range(count)), block)


def posteriax_sampler(problem: px.Problem, x: Any, y: Any, kind: str) -> tuple[Sampler, Any]:
    """The program that `px.fit` runs, and its states after the warm-up."""
    method, steps = METHODS[kind], DRAWS[kind] * METHODS[kind].thin
    driver = Driver(problem, method, (x, y), members=CHAINS, warmup=method.warmup, thin=method.thin)
    driver.advance(0)  # compiles, and takes no step

    def block() -> DrawBlock:
        infos, drawn, seconds = driver.advance(steps)
        draws = jax.vmap(jax.vmap(lambda tree: ravel_pytree(tree)[0]))(jax.tree.map(lambda a: a[: DRAWS[kind]], drawn))
        gradients = 2 * CHAINS * steps if kind == "MCLMC" else int(infos.leapfrogs[:steps].sum())
        return DrawBlock(np.swapaxes(draws, 0, 1), gradients, seconds)

    sampler = warm_up(kind, block)
    return sampler, jax.tree.map(jnp.copy, driver.states)  # a copy: the next block consumes its own


def blackjax_sampler(density: Density, kind: str, states: Any) -> Sampler:
    """BlackJAX's algorithm alone. Every chain continues from its state after posteriax's warm-up, with its settings."""
    import blackjax

    chains, thin = states.chain, METHODS[kind].thin
    flatten = jax.vmap(lambda tree: ravel_pytree(tree)[0])
    masses = states.masses if kind == "MCLMC" else states.adapted.masses
    inverse = flatten(masses.variances) if isinstance(masses, Diagonal) else masses.inverse
    longer = jax.vmap(stretch_of)(masses)
    settings: dict[str, Any] = {"inverse_mass_matrix": inverse}
    if kind == "HMC":
        chains = jax.vmap(lambda vector: blackjax.hmc.init(vector, density))(flatten(chains.position))
        length = 0.5 * math.pi * longer
        leapfrogs = jnp.ceil(length / jnp.exp(states.adapted.step_size.log_step_size_avg)).astype(jnp.int32)
        settings |= {"step_size": length / leapfrogs, "num_integration_steps": leapfrogs}
    elif kind == "NUTS":
        settings["step_size"] = jnp.exp(states.adapted.step_size.log_step_size_avg)
    else:
        settings |= {"L": chains.position.shape[1] ** 0.5 * longer, "step_size": states.tuning.step_size}

    def draw(state: Any, key: jax.Array) -> tuple[Any, Any]:
        chain, settings = state
        algorithm = getattr(blackjax, kind.lower())(density, **settings)
        chain, infos = jax.lax.scan(lambda at, k: algorithm.step(k, at), chain, jax.random.split(key, thin))
        gradients = 2 * thin if kind == "MCLMC" else infos.num_integration_steps.sum()
        return (chain, settings), (chain.position, gradients)

    return Sampler(kind, math.nan, scanned(kind, draw, (chains, settings)))


def numpyro_sampler(density: Density, kind: str) -> Sampler:
    """NumPyro's HMC with trajectories of a quarter of a period, or its NUTS as it comes, on the same density."""
    from numpyro.infer import HMC, NUTS

    same = {"trajectory_length": math.pi / 2} if kind == "HMC" else {}
    kernel = (HMC if kind == "HMC" else NUTS)(potential_fn=lambda vector: -density(vector), **same)
    size = ravel_pytree(mlp_weights(SIZES))[0].size
    keys = jax.random.split(jax.random.key(1), CHAINS)
    starts = [kernel.init(key, METHODS[kind].warmup, jax.random.normal(key, (size,)), (), {}) for key in keys]

    def draw(state: Any, _: jax.Array) -> tuple[Any, Any]:
        state = kernel.sample(state, (), {})  # it has a key of its own
        return state, (state.z, state.num_steps)

    return warm_up(kind, scanned(kind, draw, jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)))


def scanned(kind: str, draw: Callable[[Any, jax.Array], tuple[Any, Any]], states: Any) -> Callable[[], DrawBlock]:
    """Blocks of draws: a compiled scan of `draw`, (state, key) -> (state, (position, gradients)), on every device."""

    def sample_chain(key: jax.Array, state: Any) -> Any:
        return jax.lax.scan(draw, state, jax.random.split(key, DRAWS[kind]))

    mesh, split = members_mesh(CHAINS, None), PartitionSpec("members")
    chains = over_members(sample_chain, shared=0)
    spread = jax.shard_map(chains, mesh=mesh, in_specs=split, out_specs=split, check_vma=False)
    put = partial(jax.device_put, device=NamedSharding(mesh, split))
    keys = (put(jax.random.split(jax.random.fold_in(jax.random.key(2), i), CHAINS)) for i in itertools.count())
    box = {"states": put(states)}
    run = jax.jit(spread).lower(next(keys), box["states"]).compile()

    def block() -> DrawBlock:
        key = next(keys)
        (box["states"], (draws, gradients)), seconds = timed(lambda: run(key, box["states"]))
        return DrawBlock(np.asarray(draws), int(np.sum(gradients)), seconds)

    return block
