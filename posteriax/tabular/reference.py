"""A reference: draws from the posterior itself, until the chains agree on their predictions or the time is up.

Which sampler, by the network and by the number of gradients of the whole data set that the time allows (docs/decisions,
reference and tables):

    one hidden layer, many gradients   HMC: exact, but a warm-up is a hundred trajectories of up to a thousand gradients
    fewer                              MCLMC: a little biased, but a step is two gradients, so its warm-up fits any time
    several hidden layers              MCLMC from networks trained for a moment: no chain travels between modes
                                       in minutes, and eight that begin apart predict better than four longer ones

Either works on the weights of the first layer along the principal directions of the inputs, if the prior allows it.
"""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posteriax._internal import cpu_tuning
from posteriax._internal.memory import IN_MEMORY_BYTES, fitting
from posteriax.data.batches import Batch
from posteriax.diagnostics.chain_agreement import compare_chains, groups_of_chains
from posteriax.diagnostics.diagnosis import Diagnosis
from posteriax.diagnostics.sampler import diverges
from posteriax.evaluation.comparison import RunEnd, Status
from posteriax.methods.ensemble import Ensemble
from posteriax.methods.hmc import HMC
from posteriax.methods.map import MAP
from posteriax.methods.mclmc import MCLMC
from posteriax.methods.sampling.masses import (
    FEWEST_FOR_CORRELATIONS,
    GROWTH,
    MOST_FOR_DENSE,
    MOST_STATES,
    SETTLED,
    Masses,
)
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.posterior import Posterior
from posteriax.problem import Problem
from posteriax.run.fitting import fit
from posteriax.run.layout import members_mesh
from posteriax.run.until_mixed import UntilMixed
from posteriax.tabular.principal_inputs import along_principal_inputs

CHAINS, CHAINS_OF_DEEP = 4, 8
ENOUGH_FOR_HMC = 800_000  # gradients of all chains together
TRAJECTORY = 1000  # gradients, a long one
FOR_WARMUP, FOR_DRAWS = 0.2, 0.6  # of the time; the rest compiles and compares
HMC_WARMUP = (60, 200)  # transitions, at least and at most
MCLMC_WARMUP = (500, 20_000)  # steps
MCLMC_THIN = (5, 200)  # steps from draw to draw
DRAWS = 1000  # of each chain: more would only be closer together
WORTH_TRYING = 0.3  # of the time: with less left, no other sampler or plan is tried
MOST_TRIES, SLOWER = 4, 0.4  # plans, and what part of the gradients of the one before a plan counts on
TRIAL_GRADIENTS = 10
EIGEN_SECONDS = 1e-9  # to decompose a matrix of d columns, in units of d^3: on a core that has other work
FOR_MASSES = 0.1  # of the time
# Deep networks: their chains do not converge in minutes, so that each has to come as far as it can. Smaller steps, or
# masses that are learned along the way, keep some of them where they began.
LARGE_STEPS = 5e-4  # energy variance; in the narrowest directions of Gaussians, variances are then 10 % too small
SHORT_LENGTH = 0.2  # of sqrt(weights): over which the direction decorrelates
FOR_TRAINING, TRAINING_STEPS = 0.1, (300, 3_000)  # of the time, and steps of Adam: not to a mode, whose noise is tiny
TRAINING_BATCH, TRAINING_RATE = 512, 1e-2
KEPT = 2_000  # draws of all chains in the result: neighbours add little to predictions, and much to their time


def sample_reference(
    problem: Problem,
    data: Any,
    x: Any,
    *,
    seconds: float,
    key: Any,
    method: Any = "auto",
    progress: bool | None = None,
) -> RunEnd:
    """Sample until the chains agree on their predictions: R-hat below 1.01 and 400 effective draws at every point.

    Four chains start from different weights, or eight if the network has several hidden layers. If they have not mixed
    in time, the draws so far are returned, and the details say how far the run got and how much longer it would take.
    The status is that of the posterior's diagnosis at `x`: chains that have mixed but diverged too often are "not
    converged". Of more than 2,000 draws, every k-th is kept.

    Args:
        problem: network, likelihood and prior.
        data: ``(x, y)`` or ``(x, y, weight)``, arrays.
        x: inputs to compare the chains' predictions at.
        seconds: the time limit, compilation included.
        key: an int or a JAX key.
        method: a sampler of the whole data set; "auto" takes HMC for a network with at most one hidden layer if the
            time allows its warm-up, otherwise, or if HMC fails, MCLMC, with as long a warm-up as the time allows. A
            warm-up that turns out too long for the time that is left is planned anew, shorter.
        progress: show a progress bar; by default if standard error is a terminal.

    >>> import posteriax as px
    >>> rng = np.random.default_rng(0)
    >>> data = rng.normal(size=(40, 2)).astype(np.float32), rng.normal(size=40).astype(np.float32)
    >>> problem = px.Problem((lambda w, x: x @ w, np.zeros((2, 1), np.float32)), px.Normal(scale=1.0))
    >>> sample_reference(problem, data, data[0], seconds=60, key=0).status
    'converged'
    """
    began = time.monotonic()
    tried: list[str] = []
    problem = problem.for_data(data)
    turned = along_principal_inputs(problem, data[0])
    problem = problem if turned is None else turned.problem
    deep = method == "auto" and hidden_layers(problem) > 1
    chains = CHAINS_OF_DEEP if deep else CHAINS
    devices = members_mesh(chains, None).shape["members"]
    gradient_seconds = seconds_per_gradient(problem, data, devices) if method == "auto" else 0.0
    size, stored = (sum(getattr(a, of) for a in jax.tree.leaves(problem.latents)) for of in ("size", "nbytes"))
    start: Any = "map"
    if deep:
        epochs = FOR_TRAINING * seconds * devices / (gradient_seconds * chains)  # of each network
        start = train_briefly(problem, data, chains, epochs, key=key, progress=progress)
    while True:
        left = seconds - (time.monotonic() - began)
        sampler = method
        if method == "auto":  # what was too slow is planned anew, for a machine that is evidently slower
            planned = devices * left * SLOWER ** len(tried) / gradient_seconds
            sampler = affordable_sampler(planned, exact=not deep and not tried, chains=chains)
            if deep:
                settings = {"start": start, "masses": "prior", "energy_variance": LARGE_STEPS}
                sampler = replace(cast(MCLMC, sampler), **settings, length=SHORT_LENGTH * math.sqrt(size))
            elif isinstance(sampler, MCLMC):
                sampler = replace(sampler, masses=affordable_masses(size, sampler.warmup, chains / devices, left))
        stop = UntilMixed(x, seconds=max(left, 1.0))
        most = fitting(IN_MEMORY_BYTES, chains * stored)
        try:
            posterior = fit(problem, data, sampler, draws=most, chains=chains, key=key, stop=stop, progress=progress)
        except (FloatingPointError, RuntimeError) as error:
            tried.append(f"{sampler.name} failed: {error}")
            left = seconds - (time.monotonic() - began)
            again = method == "auto" and len(tried) < MOST_TRIES and left > WORTH_TRYING * seconds
            if not again or (isinstance(sampler, MCLMC) and sampler.warmup <= MCLMC_WARMUP[0]):
                return RunEnd("failed", tuple(tried), time.monotonic() - began)
            continue
        posterior = posterior if turned is None else turned.in_original_weights(posterior)
        took = time.monotonic() - began
        diagnosis = posterior.diagnose(x)
        status = status_of(diagnosis)
        details = (*tried, *posterior.trace.notes, _summary(sampler.name, posterior, took))
        if status != "converged":
            details += (diagnosis.verdict.splitlines()[0],)
        if status == "stopped at the budget":
            details += (what_it_takes(posterior, stop, took),)
        return RunEnd(status, details, took, evenly_thinned(posterior, KEPT))


def train_briefly(
    problem: Problem, data: Any, count: int, epochs: float, *, key: Any, progress: bool | None = None
) -> Posterior | str:
    """Networks that have learned the function, but not yet the noise; "map" if training fails.

    Modes of a deep network whose noise is learned or predicted fit much of the noise. Chains that start there begin
    with tiny steps, and take long to leave.
    """
    rows = len(data[1])
    batch = min(rows, TRAINING_BATCH)
    steps = int(np.clip(epochs * rows / batch, *TRAINING_STEPS))
    optimizer = optax.adam(optax.cosine_decay_schedule(TRAINING_RATE, steps))
    method = Ensemble(MAP(optimizer), count, together=True)
    try:
        return fit(problem, data, method, steps=steps, batch_size=batch, key=key, progress=progress)
    except (FloatingPointError, RuntimeError):
        return "map"


def hidden_layers(problem: Problem) -> int:
    """How many layers have weights, but for the last.

    >>> import posteriax as px
    >>> line = px.Problem((lambda w, x: x @ w, np.zeros((2, 1), np.float32)), px.Normal(scale=1.0))
    >>> hidden_layers(line)
    0
    """
    return sum(leaf.ndim > 1 for leaf in jax.tree.leaves(problem.latents.network)) - 1


def evenly_thinned(posterior: Posterior, most: int) -> Posterior:
    """A posterior with every k-th draw of each chain, so that there are at most so many; the trace stays whole."""
    if not isinstance(posterior, DrawsPosterior) or posterior.support <= most:
        return posterior
    kept, length = max(most // posterior.chains, 1), posterior.draws_per_chain
    chain, draw = np.arange(posterior.chains)[:, None], np.arange(kept) * length // kept
    return replace(posterior, draws=jax.tree.map(lambda leaf: np.asarray(leaf[chain, draw]), posterior.draws))


def status_of(diagnosis: Diagnosis) -> Status:
    """How a run ended that did not fail.

    More draws do not cure divergences. Where convergence cannot be judged, because the run was too short or the
    gradients too noisy, it is not claimed.
    """
    if diagnosis.converged:
        return "converged"
    return "not converged" if diagnosis.sampler and diverges(diagnosis.sampler) else "stopped at the budget"


def affordable_sampler(gradients: float, *, exact: bool = True, chains: int = CHAINS) -> HMC | MCLMC:
    """The sampler that fits a budget of `gradients`, summed over chains, with a warm-up that leaves most for draws.

    >>> affordable_sampler(2e6).name, affordable_sampler(2e6).warmup
    ('HMC', 100)
    >>> affordable_sampler(1e5).name, affordable_sampler(1e5).warmup, affordable_sampler(1e5).thin
    ('MCLMC', 2500, 7)
    """
    per_chain = gradients / chains
    if exact and gradients >= ENOUGH_FOR_HMC:
        return HMC(warmup=int(np.clip(FOR_WARMUP * per_chain / TRAJECTORY, *HMC_WARMUP)))
    steps = per_chain / 2
    thin = np.clip(FOR_DRAWS * steps / DRAWS, *MCLMC_THIN)
    return MCLMC(start="map", warmup=int(np.clip(FOR_WARMUP * steps, *MCLMC_WARMUP)), thin=int(thin))


def affordable_masses(weights: int, warmup: int, chains: float, seconds: float) -> Masses:
    """The most that can be learned of the correlations in a tenth of the time, by so many chains on a device.

    Every estimate decomposes three matrices, of as many columns as weights, or, for an estimate of low rank, as the
    draws and gradients that it is made from; the chains of a device take turns.

    >>> [affordable_masses(950, 2000, 4, seconds) for seconds in (120.0, 300.0, 3600.0)]
    ['adapted', 'low-rank', 'dense']
    """
    kinds: tuple[Masses, ...] = ("dense", "low-rank")
    for kind in kinds:
        columns = weights if kind == "dense" else min(weights, 2 * MOST_STATES)
        estimates = math.log(max(SETTLED * warmup / FEWEST_FOR_CORRELATIONS, 1.0), GROWTH) + 1
        takes = 3 * estimates * chains * EIGEN_SECONDS * columns**3
        if takes < FOR_MASSES * seconds and (kind != "dense" or weights <= MOST_FOR_DENSE):
            return kind
    return "adapted"


def seconds_per_gradient(problem: Problem, data: Any, devices: int = 1) -> float:
    """How long a gradient of the log joint of the whole data set takes on a device while `devices` compute one each,
    under the current load: they share caches, memory and power."""
    examples = problem.check_weighted(data)
    weight = np.ones(len(examples.y), np.float32) if examples.weight is None else examples.weight
    batch = Batch(jax.tree.map(jnp.asarray, examples.x), jnp.asarray(examples.y), jnp.asarray(weight))

    def several(latents: Any, batch: Batch) -> Any:
        gradient = jax.grad(lambda latents: problem.log_joint(latents, batch))
        move = lambda _, at: jax.tree.map(lambda a, g: a + 1e-12 * g.astype(a.dtype), at, gradient(at))  # noqa: E731
        return jax.lax.fori_loop(0, TRIAL_GRADIENTS, move, latents)

    platform = jax.devices()[0].platform
    jitted = jax.jit(cpu_tuning.with_fast_operations(several), compiler_options=cpu_tuning.options_for_steps(platform))
    run = jitted.lower(problem.latents, batch).compile()  # once: threads call the same program, as those of a run do

    def timed(_: int) -> float:
        began = time.perf_counter()
        jax.block_until_ready(run(problem.latents, batch))
        return (time.perf_counter() - began) / TRIAL_GRADIENTS

    with ThreadPoolExecutor(devices) as threads:
        list(threads.map(timed, range(devices)))
        return max(threads.map(timed, range(devices)))


def what_it_takes(posterior: Posterior, stop: UntilMixed, took: float) -> str:
    """Estimate the additional time needed, if the checks so far permit it.

    R-hat - 1 of chains that mix falls like 1 / draws. If it has not fallen at least half as fast since a quarter of the
    draws, it is unlikely to later, and nothing can be extrapolated.
    """
    draws, rhats = (np.asarray(posterior.trace[name], float) for name in ("checked_draws", "checked_rhat"))
    rhat, effective = _numbers(posterior)
    late = draws >= draws[-1] / 4
    falls = late.sum() < 2 or -np.polyfit(np.log(draws[late]), np.log(rhats[late] - 1.0), 1)[0] > 0.5
    chains = posterior.drawn_from.chains  # type: ignore[attr-defined]
    inputs = jax.tree.map(lambda a: a[stop.chosen], stop.x)
    values = posterior.predict(inputs).per_draw()
    groups = groups_of_chains(compare_chains(values.reshape(chains, len(values) // chains, -1)))
    if not falls:
        where = f"in {len(groups)} groups that predict differently" if len(groups) > 1 else "mixing too slowly to tell"
        return (
            f"The chains are {where}, and R-hat is not falling with more draws: more time may not help. A wider hidden "
            f"layer, in which units can take over from one another, often does."
        )
    times = max((rhat - 1.0) / (stop.rhat - 1.0), stop.effective_draws / max(effective, 1.0))
    return f"About {times:.1f} times the time would be enough, {math.ceil(times * took / 60)} minutes."


def _numbers(posterior: Posterior) -> tuple[float, float]:
    rhat, effective = (posterior.trace[name][-1] for name in ("checked_rhat", "checked_effective_draws"))
    return float(rhat), float(effective)


def _summary(name: str, posterior: Posterior, took: float) -> str:
    source: Any = posterior.drawn_from  # a DrawsPosterior
    chains, draws = source.chains, source.draws_per_chain
    cost = took / max(_numbers(posterior)[1], 1.0)
    return f"{name}, {chains} chains of {draws} draws, {cost:.2g} seconds per effective draw at the worst point."
