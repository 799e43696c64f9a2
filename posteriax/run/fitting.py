"""The driver: one loop for all methods.

It runs compiled chunks of steps (:mod:`posteriax.run.program`), and between them shows progress, moves draws to host
memory, writes checkpoints, and looks for trouble and Ctrl-C.
"""

import contextlib
import time
import warnings
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from posteriax._internal.checks import as_key, check_count, check_positive
from posteriax._internal.interruption import Interrupted, Stop, listen
from posteriax._internal.leaf_paths import leaf_paths
from posteriax._internal.progress import Progress
from posteriax.data import Feed, full_batch
from posteriax.families.arrays import spec_of_example
from posteriax.methods import Ensemble, Lengths, Method, Sampler, Target
from posteriax.posterior import Posterior, Trace, join_draws
from posteriax.problem import Problem, couples_examples
from posteriax.run.checkpoint import Checkpoint, CheckpointError, Saved, open_checkpoint, settings_of
from posteriax.run.feeding import PreparedData, prepare_data
from posteriax.run.gradient_noise import FIELD, NONE, GradientNoise, watch_gradients
from posteriax.run.program import Program, Streams, members_mesh
from posteriax.run.watch import Watch, Watched

SECONDS_PER_CHUNK = 0.5  # between two looks at a run
WAITING_BYTES = 64 * 2**20  # of draws in memory that a checkpoint does not have yet


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
    checkpoint: Any = None,
    checkpoint_every: float = 60.0,
    progress: bool | None = None,
    mesh: Mesh | None = None,
    watch: Watch | None = None,
    record: GradientNoise | None = None,
) -> Posterior:
    """Infer the posterior of a problem from data.

    Args:
        problem: network, likelihood, prior, temperature.
        data: ``(x, y)``, arrays with a leading axis of examples; x may be a pytree of arrays. Memory maps and arrays
            over 2 GB stay on the host. Or a loader: ``len(loader)`` batches ``(x, y)``, iterated anew every epoch.
        method: ``px.MAP()``, ``px.VI(family)``, ``px.HMC()`` and other samplers, ``px.SWAG()``, or an ``px.Ensemble``
            of any of them.
        key: an int or a JAX key. The same key gives the same posterior.
        epochs: passes over the data, for methods that optimise (or `steps`, single steps).
        draws: kept draws of each chain, for methods that sample.
        chains: for samplers, short for ``px.Ensemble(method, chains)``.
        batch_size: examples per step; 64 by default. Methods that need the whole data set take none.
        checkpoint: a folder. If it holds this run, the run goes on where it was, to the same bits. A sampler's run
            goes on for more draws if `draws` is larger than before. Draws over 256 MB stay there on disk, and the
            posterior reads them as it needs them.
        checkpoint_every: seconds between two writes to it.
        progress: show a progress bar; by default if standard error is a terminal.
        mesh: the devices that members are placed on; by default all. For methods that need the whole data set, an
            axis named "data" splits the examples: ``jax.make_mesh((2, 4), ("members", "data"))``.
        watch: a function of the posterior to call every so many steps, for methods that optimise; what it returns is
            in the posterior's trace.
        record: ``px.GradientNoise()`` records how much of the gradients is signal, for methods with an optimizer.

    Raises:
        Interrupted: on Ctrl-C, after the chunk at hand; its ``.posterior`` is what was inferred by then.
        FloatingPointError: at a value that is not finite, naming the step and the first bad leaf.
        CheckpointError: if the folder is in use, damaged, not writable, or of another run.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), (x_test, y_test) = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.VI(q.Normal()), epochs=2, key=0)
    >>> posterior.predict(x_test, draws=10).probs.shape
    (500, 2)
    """
    ensemble = _as_ensemble(method, chains)
    method, run_key = ensemble.method, as_key(key)
    check_positive("checkpoint_every", checkpoint_every)
    members = members_mesh(ensemble.members, mesh)
    prepared = prepare_data(problem, data, method, batch_size, run_key)
    problem, read_notes = problem.reading(prepared.sample.x)
    if read_notes:
        more = f" (and {len(read_notes) - 1} more leaves, in the trace's notes)" if len(read_notes) > 1 else ""
        warnings.warn(read_notes[0] + more, stacklevel=2)
    lengths = _lengths(method, prepared.per_epoch)
    total = _steps(method, prepared.per_epoch, lengths, epochs=epochs, steps=steps, draws=draws)
    if watch is not None and method.samples:
        raise ValueError(
            f"watch= is for methods that optimise: {type(method).__name__} has no posterior before its end"
        )
    if record is not None:
        ensemble = replace(ensemble, method=watch_gradients(method, record, total))
        method = ensemble.method
    target = Target(
        problem,
        spec_of_example(prepared.sample.x),
        prepared.num_examples,
        total,
        couples_examples(problem.network, prepared.sample.x),
        prepared.per_epoch,
        lengths.warmup,
        _data_axis(method, members),
    )
    notes = _look_at_coupling(method, target.couples_examples) + read_notes + method.prepare(target)
    batch_bytes = sum(a.nbytes for a in jax.tree.leaves(prepared.sample)) if prepared.source else None
    minibatches = prepared.minibatches if prepared.source is None and not method.full_batch else None
    program = Program(ensemble, target, minibatches, members, batch_bytes, lengths.thin)
    with contextlib.ExitStack() as stack:
        store = None
        if checkpoint is not None:
            settings = settings_of(ensemble, target, run_key, prepared.arrays, prepared.sample, lengths.thin)
            store = stack.enter_context(open_checkpoint(checkpoint, settings))
        bar = stack.enter_context(Progress(type(method).__name__, total, progress))
        stop = stack.enter_context(listen())
        result = _Run(program, prepared, run_key, store, checkpoint_every, watch).go(bar, stop)
    posterior = None
    if not method.samples or result.drawn:
        trace = _trace(_join(result.recorded), notes, result.seconds, target.warmup, alone=ensemble.members == 1)
        trace.arrays.update(result.watched.arrays)
        draws_made = jax.tree.map(lambda *chunks: join_draws(list(chunks)), *result.drawn) if result.drawn else None
        posterior = method.finish(target, result.states, draws_made, trace)
    if result.step < total:
        resume = f"the same call resumes it from {checkpoint}" if store else "with checkpoint=DIR it could be resumed"
        raise Interrupted(
            f"{type(method).__name__} was stopped at step {result.step} of {total}: {resume}; what it had inferred is "
            f"in this exception's .posterior",
            posterior,
        )
    assert posterior is not None  # a finished sampler has drawn
    return posterior


def _as_ensemble(method: Any, chains: int | None) -> Ensemble:
    if isinstance(method, Ensemble):
        if chains is not None:
            raise ValueError("chains= and px.Ensemble say the same twice: give one of them")
        return method
    if not hasattr(method, "step") or isinstance(method, type):
        raise TypeError(f"method must be an inference method such as px.VI(q.Normal()) or px.HMC(), got {method!r}")
    if chains is not None and not method.samples:
        name = type(method).__name__
        raise ValueError(f"chains= is for samplers; for several runs of {name} use px.Ensemble(method, members)")
    return Ensemble(method, 1 if chains is None else check_count("chains", chains))


def _lengths(method: Method, per_epoch: int) -> Lengths:
    return method.lengths(per_epoch) if method.samples else Lengths(0, 1)  # type: ignore[attr-defined]


def _data_axis(method: Method, mesh: Mesh) -> str | None:
    if mesh.shape["data"] == 1:
        return None
    if not method.full_batch:
        name = type(method).__name__
        raise ValueError(f'{name} takes minibatches: a mesh with an axis "data" is for methods of the whole data set')
    return "data"


def _steps(method: Method, per_epoch: int, lengths: Lengths, *, epochs: Any, steps: Any, draws: Any) -> int:
    """How many steps the run takes."""
    name = type(method).__name__
    if method.samples:
        if draws is None or epochs is not None or steps is not None:
            raise ValueError(f"{name} samples: say how many draws to keep, draws=, and neither epochs= nor steps=")
        return lengths.warmup + lengths.thin * check_count("draws", draws)
    if draws is not None or (epochs is None) == (steps is None):
        raise ValueError(f"{name} optimises: say how long, by either epochs= or steps=, and not draws=")
    return check_count("steps", steps) if steps is not None else check_count("epochs", epochs) * per_epoch


def _look_at_coupling(method: Method, coupled: bool) -> tuple[str, ...]:
    if not coupled:
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


class _Run:
    """The loop over chunks."""

    def __init__(
        self,
        program: Program,
        data: PreparedData,
        key: jax.Array,
        store: Checkpoint | None,
        checkpoint_every: float,
        watch: Watch | None,
    ):
        self.program, self.store, self.every, self.watch = program, store, checkpoint_every, watch
        self.key = key
        self.feed = None if data.source is None else Feed(data.source, program.capacity, program.target.steps)
        if self.feed is None:
            self.data = self._resident(data.arrays)

    def go(self, bar: Progress, stop: Stop) -> Saved:
        """All steps, or as many as there is time for; everything returned is in host memory."""
        program, total = self.program, self.program.target.steps
        started = written = time.monotonic()
        keys, (step, states, recorded, drawn, before, watched) = self._begin()
        stored, new, new_drawn = step, [], []  # type: int, list[Any], list[Any]
        count = 1 if self.feed is None else program.capacity
        waiting = 0
        seconds = before
        while step < total and not stop.asked:
            began = time.monotonic()
            last = min(step + count, total)
            if step < program.target.warmup:
                last = min(last, program.target.warmup)
            if self.watch is not None:
                last = min(last, step + self.watch.every - step % self.watch.every)
            batches = self._data(step, last)
            states, reached, well, infos, draws = program.chunk(keys, states, batches, np.int32(step), np.int32(last))
            if not np.asarray(well).all():
                raise FloatingPointError(_what_went_wrong(program, states, int(np.asarray(reached).min()), infos))
            new.append(_to_host(infos, last - step))
            kept = program.draws_until(last) - program.draws_until(step)
            if program.method.samples and kept:
                new_drawn.append(_to_host(draws, kept))
                waiting += sum(leaf.nbytes for leaf in jax.tree.leaves(new_drawn[-1]))
            now = time.monotonic()
            rate, step, seconds = (last - step) / max(now - began, 1e-9), last, before + now - started
            if program.target.warmup and step == program.target.warmup:
                warmed: Sampler = program.method  # type: ignore[assignment]
                warmed.inspect(_trace(_join(recorded + new), (), 0.0, step, alone=program.members == 1))
            if self.watch is not None and (step % self.watch.every == 0 or step == total):
                watched = watched.plus(step, self.watch.look(self._posterior(states), taken=infos._fields))
            bar.update(step, rate, _headline(new[-1]))
            due = now - written > self.every or waiting > WAITING_BYTES
            if self.store and (due or step == total or stop.asked):
                drawn = drawn + self.store.save(step, states, new, new_drawn, stored, seconds, watched)
                recorded, new, new_drawn, waiting = recorded + new, [], [], 0
                stored, written = step, time.monotonic()
            if self.feed is None:
                count = int(np.clip(rate * SECONDS_PER_CHUNK, 1, min(program.capacity, 8 * count)))
        return Saved(step, jax.device_get(states), recorded + new, drawn + new_drawn, seconds, watched)

    def _posterior(self, states: Any) -> Posterior:
        """What is inferred by now, of a method that optimises."""
        # a copy: the next chunk writes over its states
        return self.program.method.finish(self.program.target, jax.device_get(states), None, Trace({}))

    def _begin(self) -> tuple[Streams, Saved]:
        """The run's start, or where its checkpoint left off."""
        program, first = self.program, self._data(0, 1)
        if self.store:
            states, chunk = program.shapes(self.key, first)
            saved = self.store.load(states, type(chunk[3]), chunk[4])
            if saved is not None:
                _check_not_longer(saved.step, program)
                return program.keys(self.key), saved._replace(states=program.place(saved.states, "members"))
        keys, states = program.begin(self.key, first)
        bad = _first_bad_leaf(states)
        if bad:
            raise FloatingPointError(f"the run cannot start: {bad} is not finite at the starting weights")
        return keys, Saved(0, states, [], [], 0.0, Watched())

    def _data(self, first: int, last: int) -> Any:
        if self.feed is None:
            return self.data
        return self.program.place(self.feed.take(first, last))

    def _resident(self, arrays: Any) -> Any:
        """The data on the devices: as they are, or the full batch, in as many equal parts as it will be cut into."""
        program = self.program
        if not program.method.full_batch:
            return program.place(jax.tree.map(jnp.asarray, arrays))
        parts = program.mesh.shape["data"] * getattr(program.method, "micro_batches", 1)
        return program.place(jax.tree.map(jnp.asarray, full_batch(arrays, parts)), "data")


def _check_not_longer(done: int, program: Program) -> None:
    if done > program.target.steps:
        held, asked = program.draws_until(done), program.draws_until(program.target.steps)
        raise CheckpointError(
            f"the checkpoint already holds {held} draws, more than the {asked} asked for: ask for at least {held}"
        )


def _to_host(buffers: Any, count: int) -> Any:
    # sliced on the host: on the device every new length would be compiled
    return jax.tree.map(lambda a: np.array(np.asarray(a)[:count]), buffers)


def _join(chunks: list[Any]) -> Any:
    return jax.tree.map(lambda *parts: np.concatenate(parts), *chunks)


def _headline(infos: Any) -> str:
    name, values = infos._fields[0], infos[0]
    return f"{name} {float(np.mean(values[-100:])):.4g}"


def _trace(recorded: Any, notes: tuple[str, ...], seconds: float, warmup: int, *, alone: bool) -> Trace:
    values = {name: (a[:, 0] if alone else np.moveaxis(a, 1, 0)) for name, a in recorded._asdict().items()}
    if FIELD in values:  # of a window's last step only
        ends = (recorded._asdict()[FIELD] != NONE).any(axis=(1, 2, 3))
        values[FIELD] = np.compress(ends, values[FIELD], axis=0 if alone else 1)
        values[f"{FIELD}_step"] = np.flatnonzero(ends) + 1
    return Trace(values, notes, seconds, warmup)


def _what_went_wrong(program: Program, states: Any, reached: int, infos: Any) -> str:
    name = infos._fields[0]
    leaf = _first_bad_leaf(states)
    where = f"the first leaf that is not finite is {leaf}" if leaf else "all leaves are still finite"
    return (
        f"{type(program.method).__name__} stopped at step {reached} of {program.target.steps}: {name} is not finite, "
        f"and {where}. A smaller learning rate or step size, scaled inputs or a narrower prior usually help."
    )


def _first_bad_leaf(states: Any) -> str:
    for path, leaf in zip(leaf_paths(states), jax.tree.leaves(states), strict=True):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not np.isfinite(np.asarray(leaf)).all():
            return path
    return ""
