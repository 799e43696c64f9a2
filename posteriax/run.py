"""The driver: one loop for all methods.

A chunk of steps is one compiled program. Its length is an argument of the program, so that chunks of any length run
the same machine code: how a run is cut into chunks changes no bit of its result. Between chunks the driver shows
progress, moves draws to host memory and looks for trouble.

Members of an ensemble are placed on devices first, each device running its own loop; members that share a device are
vmapped.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from posteriax.arrays.uses import spec_of_example
from posteriax.checks import as_key, check_count
from posteriax.data.batches import Minibatches, full_batch
from posteriax.leaf_paths import leaf_paths
from posteriax.methods.ensemble import Ensemble
from posteriax.methods.method import Method, Sampler, Target
from posteriax.network import couples_examples
from posteriax.posterior import Posterior
from posteriax.problem import Problem
from posteriax.progress import Progress
from posteriax.trace import Trace

DEFAULT_BATCH_SIZE = 64
SECONDS_PER_CHUNK = 0.5  # between two looks at a run
STEPS_PER_CHUNK = 1000  # at the most
CHUNK_BYTES = 128 * 2**20  # of draws held on the device


def fit(
    problem: Problem,
    data: Any,
    method: Method | Ensemble,
    *,
    key: Any,
    epochs: int | None = None,
    steps: int | None = None,
    draws: int | None = None,
    chains: int | None = None,
    batch_size: int | None = None,
    progress: bool | None = None,
    mesh: Mesh | None = None,
) -> Posterior:
    """Infer the posterior of a problem from data.

    Args:
        problem: network, likelihood, prior, temperature.
        data: ``(x, y)``, arrays with a leading axis of examples; x may be a pytree of arrays.
        method: ``px.MAP()``, ``px.VI(family)``, ``px.HMC()``, or an ``px.Ensemble`` of any of them.
        key: an int or a JAX key. The same key gives the same posterior.
        epochs: passes over the data, for methods that optimise (or `steps`, single steps).
        draws: kept draws of each chain, for methods that sample.
        chains: for samplers, short for ``px.Ensemble(method, chains)``.
        batch_size: examples per step; 64 by default. Methods that need the whole data set take none.
        progress: show a progress bar; by default if standard error is a terminal.
        mesh: the devices that members are placed on; by default all.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), (x_test, y_test) = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.VI(q.Normal()), epochs=2, key=0)
    >>> posterior.predict(x_test, draws=10).probs.shape
    (500, 2)
    """
    x, y = problem.check(data)
    ensemble = _as_ensemble(method, chains)
    method = ensemble.method
    minibatches, total = _length(method, len(y), epochs=epochs, steps=steps, draws=draws, batch_size=batch_size)
    notes = _look_at_coupling(problem, method, x)
    target = Target(problem, spec_of_example(x), len(y), total)
    notes += method.prepare(target)
    program = _Program(ensemble, target, minibatches, _members_mesh(ensemble.members, mesh))
    run_key = as_key(key)
    started = time.monotonic()
    with Progress(f"{type(method).__name__}", total, progress) as bar:
        states, recorded, kept = _run(program, run_key, (x, y), bar)
    trace = _trace(recorded, notes, time.monotonic() - started, alone=ensemble.members == 1)
    return method.finish(target, states, kept, trace)


def _as_ensemble(method: Any, chains: int | None) -> Ensemble:
    if isinstance(method, Ensemble):
        if chains is not None:
            raise ValueError("chains= and px.Ensemble say the same twice: give one of them")
        return method
    if not hasattr(method, "step") or isinstance(method, type):
        raise TypeError(f"method must be an inference method such as px.VI(q.Normal()) or px.HMC(), got {method!r}")
    if chains is not None and not method.samples:
        raise ValueError(
            f"chains= is for samplers; for several runs of {type(method).__name__} use px.Ensemble(method, members)"
        )
    return Ensemble(method, 1 if chains is None else check_count("chains", chains))


def _length(
    method: Method, n: int, *, epochs: Any, steps: Any, draws: Any, batch_size: Any
) -> tuple[Minibatches | None, int]:
    """How a step gets its data, and how many steps the run takes."""
    name = type(method).__name__
    if method.full_batch and batch_size is not None:
        raise ValueError(f"{name} needs the whole data set at every step: leave batch_size out")
    size = n if method.full_batch else min(n, check_count("batch_size", batch_size or DEFAULT_BATCH_SIZE))
    minibatches = Minibatches.of(n, size)
    if method.samples:
        if draws is None or epochs is not None or steps is not None:
            raise ValueError(f"{name} samples: say how many draws to keep, draws=, and neither epochs= nor steps=")
        total = method.warmup + check_count("draws", draws)  # type: ignore[attr-defined]
    else:
        if draws is not None or (epochs is None) == (steps is None):
            raise ValueError(f"{name} optimises: say how long, by either epochs= or steps=, and not draws=")
        total = (
            check_count("steps", steps) if steps is not None else check_count("epochs", epochs) * minibatches.per_epoch
        )
    return (None if method.full_batch else minibatches), total


def _look_at_coupling(problem: Problem, method: Method, x: Any) -> tuple[str, ...]:
    if not couples_examples(problem.network, x):
        return ()
    if method.full_batch:
        raise ValueError(
            f"the network's outputs for one example depend on the other examples of its batch (batch statistics?), so "
            f"the likelihood is not a product over examples and {type(method).__name__} has no posterior to sample. "
            f"Use a normalisation within examples (GroupNorm, LayerNorm, filter response), or switch batch "
            f"normalisation to its stored statistics."
        )
    return (
        "the network's outputs couple the examples of a batch (batch statistics): predictions depend on which examples "
        "are predicted together",
    )


def _members_mesh(members: int, mesh: Mesh | None) -> Mesh:
    """As many devices as divide the members evenly."""
    devices = list(mesh.devices.flat) if mesh is not None else jax.devices()
    count = max(n for n in range(1, min(members, len(devices)) + 1) if members % n == 0)
    return Mesh(np.array(devices[:count]), ("members",))


class _Program:
    """The compiled parts of a run: starting all members, and a chunk of steps of all members."""

    def __init__(self, ensemble: Ensemble, target: Target, minibatches: Minibatches | None, mesh: Mesh):
        self.method, self.target, self.members, self.mesh = ensemble.method, target, ensemble.members, mesh
        self.warmup: int = getattr(ensemble.method, "warmup", 0)
        self.capacity = self._capacity()
        split, everywhere, second = P("members"), P(), P(None, "members")
        spread = partial(jax.shard_map, mesh=mesh, check_vma=False)
        start = _over_members(partial(_start, ensemble, target), shared=1)
        self.start = jax.jit(spread(start, in_specs=(split, split, everywhere), out_specs=split))
        chunk = partial(_chunk, self.method, target, minibatches, self.capacity)
        self.chunk = jax.jit(
            spread(
                chunk,
                in_specs=(split, split, everywhere, everywhere, everywhere),
                out_specs=(split, split, split, second, second),
            ),
            donate_argnums=1,
        )

    def _capacity(self) -> int:
        """Steps that one chunk has room for."""
        most = min(STEPS_PER_CHUNK, self.target.steps)
        if not self.method.samples:
            return most
        draw = self.members * sum(leaf.nbytes for leaf in jax.tree.leaves(self.target.problem.unknowns))
        return int(np.clip(CHUNK_BYTES // draw, 1, most))

    def place(self, tree: Any, spec: Any) -> Any:
        return jax.device_put(tree, NamedSharding(self.mesh, spec))


def _over_members(function: Callable[..., Any], *, shared: int) -> Callable[..., Any]:
    """Map over the leading axis of all arguments but the last `shared` ones; a single member is not vmapped."""

    def mapped(*args: Any) -> Any:
        own, common = args[: len(args) - shared], args[len(args) - shared :]
        if jax.tree.leaves(own)[0].shape[0] == 1:
            alone = function(*jax.tree.map(lambda leaf: leaf[0], own), *common)
            return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], alone)
        return jax.vmap(function, in_axes=(0,) * len(own) + (None,) * shared)(*own, *common)

    return mapped


def _start(ensemble: Ensemble, target: Target, key: jax.Array, member: jax.Array, data: Any) -> Any:
    key_start, key_init = jax.random.split(key)
    start = ensemble.start(target.problem, key_start, member)
    state = ensemble.method.init(target, key_init, start, full_batch(data))
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), state
    )  # weak types would compile the chunk twice


def _chunk(
    method: Method,
    target: Target,
    minibatches: Minibatches | None,
    capacity: int,
    keys: jax.Array,
    states: Any,
    data: Any,
    first: jax.Array,
    last: jax.Array,
) -> tuple[Any, jax.Array, jax.Array, Any, Any]:
    """Steps `first` to `last` of the members of one device; ends early at a value that is not finite.

    Returns the states, the step reached and whether all is well (of this device), and what every step recorded and
    drew, with leading axes (capacity, members).
    """

    def order(epoch: Any) -> Any:
        return _over_members(minibatches.order, shared=1)(keys, epoch)  # type: ignore[union-attr]

    def one(key: jax.Array, state: Any, order: jax.Array, step: jax.Array) -> tuple[Any, Any, Any]:
        batch = full_batch(data) if minibatches is None else minibatches.take(data, order, step % minibatches.per_epoch)
        state, info = method.step(target, jax.random.fold_in(key, step), state, batch)
        return state, info, method.draw(state) if method.samples else None  # type: ignore[attr-defined]

    all_members = _over_members(one, shared=1)
    per_epoch, size = (1, 0) if minibatches is None else (minibatches.per_epoch, minibatches.size)
    no_order = jnp.zeros((keys.shape[0], per_epoch, size), jnp.int32)
    shapes = jax.eval_shape(all_members, keys, states, no_order, first)[1:]
    room = jax.tree.map(lambda s: jnp.zeros((capacity, *s.shape), s.dtype), shapes)

    def going(carry: Any) -> jax.Array:
        step, _, _, well, _ = carry
        return (step < last) & well

    def advance(carry: Any) -> Any:
        step, states, current, _, room = carry
        if minibatches is not None:
            begins = (step % per_epoch == 0) | (step == first)
            current = jax.lax.cond(begins, lambda: order(step // per_epoch), lambda: current)
        states, info, drawn = all_members(keys, states, current, step)
        room = jax.tree.map(lambda buffer, value: buffer.at[step - first].set(value), room, (info, drawn))
        return step + 1, states, current, jnp.isfinite(info[0]).all(), room

    carry = (first, states, no_order, jnp.array(True), room)
    reached, states, _, well, (infos, drawn) = jax.lax.while_loop(going, advance, carry)
    return states, reached[None], well[None], infos, drawn


def _run(program: _Program, key: jax.Array, data: Any, bar: Progress) -> tuple[Any, Any, Any]:
    """All steps, chunk by chunk. Returns the states, what was recorded and the draws, all in host memory."""
    keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(program.members))
    members = program.place(jnp.arange(program.members), P("members"))
    keys = program.place(keys, P("members"))
    data = program.place(jax.tree.map(jnp.asarray, data), P())
    states = program.start(keys, members, data)
    _check_start(program.target, states)
    step, count, total = 0, 1, program.target.steps
    recorded: list[Any] = []
    kept: list[Any] = []
    while step < total:
        began = time.monotonic()
        last = min(step + count, total)
        if step < program.warmup:
            last = min(last, program.warmup)
        arguments = jnp.int32(step), jnp.int32(last)
        states, reached, well, infos, drawn = program.chunk(keys, states, data, *arguments)
        if not np.asarray(well).all():
            raise FloatingPointError(_what_went_wrong(program, states, int(np.asarray(reached).min()), infos, step))
        recorded.append(_to_host(infos, last - step))
        if program.method.samples and step >= program.warmup:
            kept.append(_to_host(drawn, last - step))
        rate = (last - step) / max(time.monotonic() - began, 1e-9)
        step = last
        if program.warmup and step == program.warmup:
            warmed: Sampler = program.method  # type: ignore[assignment]
            warmed.inspect(_trace(_join(recorded), (), 0.0, alone=program.members == 1))
        count = int(np.clip(rate * SECONDS_PER_CHUNK, 1, min(program.capacity, 8 * count)))
        bar.update(step, rate, _headline(recorded[-1]))
    draws = jax.tree.map(lambda a: np.swapaxes(a, 0, 1), _join(kept)) if kept else None
    return jax.device_get(states), _join(recorded), draws


def _to_host(buffers: Any, count: int) -> Any:
    # sliced on the host: on the device every new length would be compiled
    return jax.tree.map(lambda a: np.array(np.asarray(a)[:count]), buffers)


def _join(chunks: list[Any]) -> Any:
    return jax.tree.map(lambda *parts: np.concatenate(parts), *chunks)


def _headline(infos: Any) -> str:
    name, values = infos._fields[0], infos[0]
    return f"{name} {float(np.mean(values[-100:])):.4g}"


def _trace(recorded: Any, notes: tuple[str, ...], seconds: float, *, alone: bool) -> Trace:
    values = {name: (a[:, 0] if alone else a.T) for name, a in recorded._asdict().items()}
    return Trace(values, notes, seconds)


def _check_start(target: Target, states: Any) -> None:
    bad = _first_bad_leaf(states)
    if bad:
        raise FloatingPointError(f"the run cannot start: {bad} is not finite at the starting weights")


def _what_went_wrong(program: _Program, states: Any, reached: int, infos: Any, first: int) -> str:
    name = infos._fields[0]
    leaf = _first_bad_leaf(states)
    where = f"the first leaf that is not finite is {leaf}" if leaf else "all leaves are still finite"
    return (
        f"{type(program.method).__name__} stopped at step {reached} of {program.target.steps}: {name} is not finite, "
        f"and {where}. A smaller learning rate, scaled inputs or a narrower prior usually help."
    )


def _first_bad_leaf(states: Any) -> str:
    for path, leaf in zip(leaf_paths(states), jax.tree.leaves(states), strict=True):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not np.isfinite(np.asarray(leaf)).all():
            return path
    return ""
