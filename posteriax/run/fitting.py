"""From the arguments of `px.fit` to a run that can start: everything is checked here, before anything is compiled.

``px.fit``: prepare a run, drive it with its observers, and return the posterior.
"""

import contextlib
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from posteriax import distributed
from posteriax._internal.checks import as_key, check_count, check_positive
from posteriax._internal.interruption import Interrupted, listen
from posteriax._internal.progress import Progress
from posteriax.data.augmentation import Augmentation
from posteriax.data.batches import Batch
from posteriax.distributed.meshes import DATA
from posteriax.methods.ensemble import Ensemble, Members
from posteriax.methods.method import Method, RunLength, Task
from posteriax.networks.tracing.uses import spec_of_example
from posteriax.posterior.draws import join_draws
from posteriax.posterior.posterior import Posterior
from posteriax.problem import Problem
from posteriax.run.checkpoint import SaveCheckpoints, open_checkpoint, run_identity
from posteriax.run.feeding import PreparedData, Supply, prepare_data
from posteriax.run.fixed_features import plan_fixed_part
from posteriax.run.gradient_noise import GradientNoise, record_gradients
from posteriax.run.layout import check_data_axis, chosen_leaves, members_mesh, own_part
from posteriax.run.loop import (
    CheckWarmup,
    Observer,
    Run,
    ShowProgress,
    StopOnInterrupt,
    SyncProcesses,
    first_bad_leaf,
    run_steps,
    trace_of,
)
from posteriax.run.program import Program
from posteriax.run.sampling_rule import SamplingRule, StopSampling
from posteriax.run.stopping import HeldOut, StopEarly, StoppingRule, hold_out
from posteriax.run.until_level import StopWhenLevel, UntilLevel, fall_when_level
from posteriax.run.watch import Watch, WatchObserver


class PreparedRun(NamedTuple):
    """A run that is ready to start."""

    program: Program
    members: Members
    data: PreparedData
    key: jax.Array
    notes: tuple[str, ...]


class Length(NamedTuple):
    """The requested length of a run: one of these."""

    epochs: Any
    steps: Any
    draws: Any


def prepare_run(
    problem: Problem,
    data: Any,
    method: Any,
    key: Any,
    length: Length,
    chains: int | None,
    batch_size: int | None,
    mesh: Mesh | None,
    record: GradientNoise | None,
    augment: Any = None,
    shard: Any = (),
    *,
    until_level: bool = False,
) -> PreparedRun:
    """Check the arguments of `px.fit` and bind its method."""
    ensemble = _as_ensemble(method, chains, record)
    method, run_key = ensemble.method, as_key(key)
    devices = members_mesh(ensemble.members, mesh)
    prepared = prepare_data(problem, data, method, batch_size, run_key, own_part(devices))
    check_data_axis(devices, len(prepared.sample.weight), prepared.num_examples, full_batch=method.full_batch)
    augmentation, augment_notes = _augmentation(augment, method, prepared.sample)
    problem, read_notes = problem.reading(prepared.sample.x)
    if prepared.target_scale is not None:
        problem = problem.for_target_scale(prepared.target_scale)
    if read_notes:
        more = f" (and {len(read_notes) - 1} more leaves, in the trace's notes)" if len(read_notes) > 1 else ""
        warnings.warn(read_notes[0] + more, stacklevel=3)
    pace = method.run_length(prepared.per_epoch)
    varying = "inputs are augmented" if augmentation else ""
    fixed = plan_fixed_part(problem, prepared, training=not method.full_batch, varying=varying)
    task = Task(
        problem=problem,
        example=spec_of_example(prepared.sample.x) if fixed.part is None else fixed.part.spec,
        num_examples=prepared.num_examples,
        total_weight=prepared.total_weight,
        steps=_steps(method, prepared.per_epoch, pace, length),
        steps_per_epoch=prepared.per_epoch,
        couples_examples=problem.couples_examples(prepared.sample.x),
        warmup=pace.warmup,
        thin=pace.thin,
        data_axis=DATA if method.full_batch and devices.shape[DATA] > 1 else None,
    )
    about = _coupling_notes(method, task) + _precision_notes(method, problem)
    members = ensemble.bind(task)
    if until_level:
        members = fall_when_level(members)
    prepared = fixed.compute(prepared)
    batch_bytes = sum(a.nbytes for a in jax.tree.leaves(prepared.sample)) if prepared.source else None
    minibatches = prepared.minibatches if prepared.source is None and not method.full_batch else None
    sharded = _sharded(shard, method, problem, devices)
    program = Program(members, minibatches, devices, batch_bytes, augmentation, sharded)
    notes = about + augment_notes + read_notes + fixed.notes + members.kernel.notes
    return PreparedRun(program, members, prepared, run_key, notes)


def _as_ensemble(method: Any, chains: int | None, record: GradientNoise | None) -> Ensemble:
    if isinstance(method, Ensemble):
        if chains is not None:
            raise ValueError("chains= and px.Ensemble both set the number of chains: use one of them")
        ensemble = method
    elif not isinstance(method, Method):
        raise TypeError(f"method must be an inference method such as px.VI(q.Normal()) or px.HMC(), got {method!r}")
    elif chains is not None and not method.samples:
        raise ValueError(f"chains= is for samplers; for several runs of {method.name} use px.Ensemble(method, members)")
    else:
        ensemble = Ensemble(method, 1 if chains is None else check_count("chains", chains))
    if record is None:
        return ensemble
    return Ensemble(record_gradients(ensemble.method, record), ensemble.members, ensemble.starts)


def _steps(method: Method, per_epoch: int, pace: RunLength, length: Length) -> int:
    """How many steps the run takes."""
    epochs, steps, draws = length
    if method.samples:
        if draws is None or epochs is not None or steps is not None:
            raise ValueError(f"{method.name} is a sampler: give draws=, not epochs= or steps=")
        return pace.warmup + pace.thin * check_count("draws", draws)
    if draws is not None or (epochs is None) == (steps is None):
        raise ValueError(f"{method.name} optimises: give either epochs= or steps=, not draws=")
    return check_count("steps", steps) if steps is not None else check_count("epochs", epochs) * per_epoch


def _sharded(shard: Any, method: Method, problem: Problem, mesh: Mesh) -> tuple[str, ...]:
    """The paths of the leaves whose parameters are split over devices."""
    leaves = chosen_leaves(shard, problem)
    if leaves and method.full_batch:
        raise ValueError(
            f"shard= is for methods that use minibatches: {method.name} holds all weights in one vector on each device"
        )
    if leaves and mesh.shape[DATA] == 1:
        raise ValueError(
            "shard= splits parameters over the devices that share the data: use mesh=px.mesh(data=...) with several"
        )
    return leaves


def _precision_notes(method: Method, problem: Problem) -> tuple[str, ...]:
    if not (problem.network.compute and method.full_batch):
        return ()
    note = (
        f"{method.name} computes its energies in {problem.network.compute}: where the posterior is not much wider than "
        f"the rounding of its weights (1/256 of their size), steps shrink and chains stall. Check against float32"
    )
    warnings.warn(note, stacklevel=4)
    return (note,)


def _augmentation(augment: Any, method: Method, sample: Batch) -> tuple[Augmentation | None, tuple[str, ...]]:
    """The augmentation of a run's batches, checked on one of them, and what the trace says about it."""
    if augment is None:
        return None, ()
    augmentation = Augmentation.of(augment)
    if method.full_batch:
        raise ValueError(
            f"augment= is for methods that use minibatches: {method.name} needs the same log joint at every evaluation "
            f"of a trajectory, and a random augmentation would change it"
        )
    augmentation.check(sample.x)
    return augmentation, (
        f"augmented by {augmentation}: the target is the log-likelihood's mean over augmentations, summed over the "
        f"examples, which is not the likelihood of the data",
    )


def _coupling_notes(method: Method, task: Task) -> tuple[str, ...]:
    if not task.couples_examples:
        return ()
    if method.full_batch:
        raise ValueError(
            f"the network's outputs for one example depend on the other examples of its batch (batch statistics?), so "
            f"the likelihood is not a product over examples and {method.name} has no posterior to sample. "
            f"{task.problem.network.how_to_uncouple}"
        )
    return (
        "the network's outputs couple the examples of a batch (batch statistics): predictions depend on which examples "
        "are predicted together",
    )


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
    stop: StoppingRule | UntilLevel | SamplingRule | None = None,
    augment: Any = None,
    shard: str | Sequence[str] = (),
) -> Posterior:
    """Infer the posterior of a problem from data.

    Args:
        problem: network, likelihood, prior, temperature.
        data: ``(x, y)``, arrays with a leading axis of examples; x may be a pytree of arrays. Memory maps and arrays
            over 2 GB stay on the host. Or a loader of ``len(loader)`` batches ``(x, y)``, such as a list of
            them, iterated once per epoch.
            With ``(x, y, weight)`` each example counts as `weight` examples in the likelihood's sum.
        method: ``px.MAP()``, ``px.VI(family)``, ``px.HMC()``, ..., or a ``px.Ensemble`` of any of them.
        key: an int or a JAX key. The same key gives the same posterior.
        epochs: passes over the data, for methods that optimise (or `steps`, single steps).
        draws: draws to keep from each chain, for methods that sample.
        chains: for samplers, short for ``px.Ensemble(method, chains)``.
        batch_size: examples per step; 64 by default. Not for methods that need the whole data set.
        checkpoint: a folder. If it holds this run, the run resumes from there, bit-identical to an uninterrupted one;
            a larger `draws` than before extends a sampler's run. Draws over 256 MB stay on disk and are read as needed.
        checkpoint_every: seconds between checkpoints.
        progress: show a progress bar; by default if standard error is a terminal.
        mesh: ``px.mesh(members=2, data=4)`` spreads members over two groups of four devices, which share the examples
            of every step (docs/scaling.md); by default members are spread over all devices. The layout changes
            the result by rounding only.
        shard: for large networks, patterns of leaves, such as ``"**/weight"``, whose parameters, gradients and
            optimiser state are split over the devices that share the data, instead of copied to each.
        watch: a :class:`px.Watch`, which evaluates the posterior during the run, for methods that optimise.
        augment: a function ``(key, x) -> x`` of a batch, or a list of them: ``[px.data.RandomCrop(4),
            px.data.RandomFlip()]``. Every step augments its batch; predictions are not augmented (docs/data.md).
        record: ``px.GradientNoise()`` records the signal and noise of gradients, for methods with an optimizer.
        stop: for methods that optimise, ``px.UntilLevel()`` ends the run once more training would gain next to nothing,
            and ``px.EarlyStopping(...)`` returns the best posterior of the run by a score on held-out data. For
            samplers, ``px.UntilMixed(x)`` ends the run once its chains agree on their predictions at x, or after so
            many seconds. `steps`, `epochs` or `draws` is then the upper limit.

    Raises:
        Interrupted: on Ctrl-C or SIGTERM, after the current chunk and its checkpoint; its ``.posterior`` is the
            posterior so far.
        px.distributed.ProcessError: if another process of the run has failed, died, or was given something else.
        FloatingPointError: at a non-finite value, naming the step and the first non-finite leaf.
        CheckpointError: if the folder is in use, damaged, not writable, or holds another run.

    >>> import numpy as np, posteriax as px
    >>> (x, y), (x_test, y_test) = px.data.two_moons()
    >>> problem = px.Problem((lambda w, x: x @ w, np.zeros((2, 2), np.float32)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.VI(), epochs=2, key=0)
    >>> posterior.predict(x_test, draws=10).probs.shape
    (500, 2)
    """
    length = Length(epochs, steps, draws)
    rule = hold_out(stop, problem, data, as_key(key)) if isinstance(stop, StoppingRule) else _checked(stop)
    training, level = rule.training if isinstance(rule, HeldOut) else data, isinstance(rule, UntilLevel)
    with distributed.together("checking the arguments of px.fit"):
        prepared = prepare_run(
            problem, training, method, key, length, chains, batch_size, mesh, record, augment, shard, until_level=level
        )
    with distributed.losing_processes():
        return _execute(prepared, checkpoint, checkpoint_every, progress, watch, rule)


def _checked(stop: Any) -> UntilLevel | SamplingRule | None:
    if stop is not None and not isinstance(stop, UntilLevel | SamplingRule):
        raise TypeError(
            f"stop must be px.UntilLevel(...), px.EarlyStopping(...) or, for samplers, px.UntilMixed(...); got {stop!r}"
        )
    return stop


def _execute(
    prepared: PreparedRun,
    folder: Any,
    checkpoint_every: float,
    progress: bool | None,
    watch: Watch | None,
    rule: HeldOut | UntilLevel | SamplingRule | None,
) -> Posterior:
    check_positive("checkpoint_every", checkpoint_every)
    program, name, total = prepared.program, prepared.program.method.name, prepared.program.task.steps
    observers: list[Observer] = [CheckWarmup(program)]
    if watch is not None:
        _check_optimises("watch=", program.method)
        observers.append(WatchObserver(watch, program))
    stopping = None if rule is None else _stopping(rule, program)
    observers += [stopping] if stopping else []
    identity = _agreed_identity(prepared, stopping, folder)
    with contextlib.ExitStack() as stack:
        checkpoints = None
        if folder is not None:
            with distributed.together("opening the checkpoint"):
                store = stack.enter_context(open_checkpoint(folder, identity))
            checkpoints = SaveCheckpoints(store, checkpoint_every, program, tuple(observers))
        shown = progress if distributed.is_first() else False
        observers.append(ShowProgress(stack.enter_context(Progress(name, total, shown)), tuple(observers)))
        agreement = SyncProcesses(stack.enter_context(listen()))
        observers.append(StopOnInterrupt(agreement.stop))
        run = _run(prepared, Supply(prepared.data, program), checkpoints, observers, agreement)
    posterior = _posterior(prepared, run, [*observers, *([checkpoints] if checkpoints else [])])
    if run.step < total and not (stopping and stopping.asks_to_stop()):
        resume = f"the same call resumes it from {folder}" if folder else "with checkpoint=DIR it could be resumed"
        raise Interrupted(
            f"{name} was stopped at step {run.step} of {total}: {resume}; this exception's .posterior is the posterior "
            f"so far",
            posterior,
        )
    if posterior is None:  # only a limit of seconds ends a sampler before its first draw
        raise RuntimeError(
            f"{name} had taken {run.step} of {program.task.warmup} warm-up steps, and its time is too short for the "
            f"others: allow more seconds, or a shorter warmup"
        )
    return posterior


def _agreed_identity(
    prepared: PreparedRun, stopping: StopEarly | StopWhenLevel | StopSampling | None, folder: Any
) -> dict[str, str]:
    """What the run depends on, if it has a checkpoint, or processes that must agree on it."""
    if folder is None and not distributed.several():
        return {}
    program, data = prepared.program, prepared.data
    given = data.arrays if data.given is None else data.given
    identity = run_identity(prepared.members, prepared.key, given, data.sample, program.augment)
    identity |= stopping.identity() if isinstance(stopping, StopEarly | StopWhenLevel) else {}
    layout = {"steps": str(program.task.steps), "checkpoint": str(folder), "mesh": str(dict(program.mesh.shape))}
    distributed.check_same(identity | layout, "starting the run")
    return identity


def _stopping(rule: HeldOut | UntilLevel | SamplingRule, program: Program) -> StopEarly | StopWhenLevel | StopSampling:
    method = program.method
    if isinstance(rule, SamplingRule):
        if not method.samples:
            raise ValueError(
                f"stop={type(rule).__name__}(...) is for samplers: {method.name} optimises, and px.EarlyStopping(...) "
                f"can end it"
            )
        if rule.seconds is not None and distributed.several():
            raise ValueError("a limit of seconds is for runs of one process: several would measure different times")
        return StopSampling(rule, program)
    if isinstance(rule, UntilLevel):
        return StopWhenLevel(rule, program)
    _check_optimises("stop=", method)
    if method.fixed_length:
        raise ValueError(f"stop= is not for {method.name}: its posterior is collected until the end of the run")
    return StopEarly(rule, program)


def _run(
    prepared: PreparedRun,
    supply: Supply,
    checkpoints: SaveCheckpoints | None,
    observers: list[Observer],
    agreement: SyncProcesses,
) -> Run:
    """Run from the start, or from the checkpoint, to the end."""
    program, first = prepared.program, supply.take(0, 1)
    run = checkpoints.load(prepared.key, first) if checkpoints else None
    if run is not None:
        keys = program.keys(prepared.key)
        run.ending = any(observer.asks_to_stop() for observer in observers)
    else:
        keys, states = program.begin(prepared.key, first)
        if bad := first_bad_leaf(states):
            raise FloatingPointError(f"the run cannot start: {bad} is not finite at the starting weights")
        run = Run(0, states, [], [])
    # the checkpoint comes last: it keeps what the others have seen
    run_steps(program, supply, keys, run, [*observers, *([checkpoints] if checkpoints else [])], agreement)
    return run


def _posterior(prepared: PreparedRun, run: Run, observers: list[Observer]) -> Posterior | None:
    """The posterior of a run; None if it was stopped before a sampler's first draw."""
    program = prepared.program
    if program.method.samples and not run.drawn:
        return None
    notes = prepared.notes + tuple(note for observer in observers for note in observer.notes())
    dropped = sum(observer.dropped() for observer in observers)
    trace, states = trace_of(program, run.recorded, notes, run.seconds, dropped), distributed.to_host(run.states)
    for observer in observers:
        trace.arrays.update(observer.trace_arrays())
        states = observer.chosen(states)
    draws = jax.tree.map(lambda *chunks: join_draws(list(chunks), dropped), *run.drawn) if run.drawn else None
    return program.kernel.finish(states, draws, trace)


def _check_optimises(argument: str, method: Method) -> None:
    if method.samples:
        raise ValueError(
            f"{argument} is for methods that optimise: {method.name} has no posterior before its end. A sampler's run "
            f"ends early with stop=px.UntilMixed(x)"
        )
