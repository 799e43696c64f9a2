"""``px.fit``: check the arguments, bind the method, drive the run with its observers, and return the posterior.

    RunRequest  ->  prepare_run  ->  PreparedRun  ->  run_steps (loop.py)  ->  Kernel.finish  ->  Posterior

Everything is checked before anything is compiled.
"""

import contextlib
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import jax
from jax.sharding import Mesh

from posteriax import distributed
from posteriax._internal.checks import as_key, check_count, check_positive
from posteriax._internal.interruption import Interrupted, listen
from posteriax._internal.memory import IN_MEMORY_BYTES, fitting
from posteriax._internal.progress import Progress
from posteriax.data.augmentation import Augmentation
from posteriax.data.batches import Batch
from posteriax.distributed.meshes import DATA
from posteriax.likelihoods.classes import Categorical
from posteriax.methods.ensemble import Ensemble, Members
from posteriax.methods.method import Method, RunLength, Task
from posteriax.networks.tracing.probabilities import outputs_are_probabilities
from posteriax.networks.tracing.program import spec_of_example
from posteriax.posterior.draws import join_draws
from posteriax.posterior.posterior import Posterior
from posteriax.problem import Problem
from posteriax.run.checkpoint import SaveCheckpoints, open_checkpoint, run_identity
from posteriax.run.feeding import Inputs, PreparedData, Supply, TrainingData, prepare_data
from posteriax.run.fixed_features import plan_fixed_part
from posteriax.run.gradient_noise import GradientNoise, record_gradients
from posteriax.run.layout import check_data_axis, chosen_leaves, local_part, members_mesh
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
from posteriax.run.stopping import StopRule, check_optimises
from posteriax.run.until_level import UntilLevel
from posteriax.run.until_mixed import UntilMixed
from posteriax.run.watch import Watch, WatchObserver

# limits of a run until it has converged, where none are given
MOST_STEPS = 100_000
MOST_DRAWS = 20_000  # of each chain, as far as they fit into memory
CHAINS = 4

Augment = Callable[[jax.Array, Inputs], Inputs] | Sequence[Callable[[jax.Array, Inputs], Inputs]]


def fit(
    problem: Problem,
    data: TrainingData,
    method: Method | Ensemble,
    *,
    key: int | jax.Array,
    epochs: int | None = None,
    steps: int | None = None,
    draws: int | None = None,
    chains: int | None = None,
    batch_size: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
    progress: bool | None = None,
    mesh: Mesh | None = None,
    watch: Watch | None = None,
    record: GradientNoise | None = None,
    until: Literal["converged"] | None = None,
    seconds: float | None = None,
    stop: StopRule | None = None,
    augment: Augment | None = None,
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
        mesh: ``px.distributed.mesh(members=2, data=4)`` spreads members over two groups of four devices, which share
            the examples of every step (docs/scaling.md); by default members are spread over all devices. The layout
            changes the result by rounding only.
        shard: for large networks, patterns of leaves, such as ``"**/weight"``, whose parameters, gradients and
            optimiser state are split over the devices that share the data, instead of copied to each.
        watch: a :class:`px.run.Watch`, which evaluates the posterior during the run, for methods that optimise.
        augment: a function ``(key, x) -> x`` of a batch, or a list of them: ``[px.data.RandomCrop(4),
            px.data.RandomFlip()]``. Every step augments its batch; predictions are not augmented (docs/data.md).
        record: ``px.run.GradientNoise()`` records the signal and noise of gradients, for methods with an optimizer.
        until: ``"converged"`` ends the run once more of it would change next to nothing: :class:`px.run.UntilLevel` for
            methods that optimise, :class:`px.run.UntilMixed` at training inputs for samplers, which then run four
            chains unless told otherwise. `steps`, `epochs` or `draws` is the upper limit, and may be left out: it is
            then 100,000 steps, or 20,000 draws of each chain as far as they fit into memory.
            ``posterior.trace.converged`` says whether the run has converged, and one of ``posterior.trace.notes`` why.
        seconds: a limit of time for ``until="converged"``, compilation included.
        stop: a rule with settings of your own: ``px.run.UntilLevel(...)``, ``px.run.UntilMixed(x, ...)``, or
            ``px.evaluation.EarlyStopping(...)``, which returns the best posterior of the run by a score on held-out
            data. `steps`, `epochs` or `draws` is then the upper limit.

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
    >>> px.fit(problem, (x, y), px.HMC(), until="converged", seconds=300, key=0).trace.converged
    True
    """
    request = RunRequest(
        problem=problem,
        data=data,
        method=method,
        key=key,
        epochs=epochs,
        steps=steps,
        draws=draws,
        chains=chains,
        batch_size=batch_size,
        mesh=mesh,
        record=record,
        until=until,
        seconds=seconds,
        stop=stop,
        augment=augment,
        shard=shard,
    )
    with distributed.together("checking the arguments of px.fit"):
        prepared = prepare_run(request)
    with distributed.losing_processes():
        return _execute(prepared, checkpoint, checkpoint_every, progress, watch)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunRequest:
    """What to infer, and how: those arguments of :func:`px.fit`, which explains them, that decide its result."""

    problem: Problem
    data: TrainingData
    method: Method | Ensemble
    key: int | jax.Array
    epochs: int | None = None
    steps: int | None = None
    draws: int | None = None
    chains: int | None = None
    batch_size: int | None = None
    mesh: Mesh | None = None
    record: GradientNoise | None = None
    until: str | None = None
    seconds: float | None = None
    stop: StopRule | None = None
    augment: Augment | None = None
    shard: str | Sequence[str] = ()


class PreparedRun(NamedTuple):
    """A run that is ready to start."""

    program: Program
    members: Members
    data: PreparedData
    key: jax.Array
    rule: StopRule | None
    notes: tuple[str, ...]


def prepare_run(request: RunRequest) -> PreparedRun:
    """Check what was requested, and bind its method."""
    ensemble = _as_ensemble(request)
    method, problem, data, key = ensemble.method, request.problem, request.data, as_key(request.key)
    rule = _stop_rule(request, method)
    if rule is not None:
        rule, data = rule.for_data(problem, data, key)
    devices = members_mesh(ensemble.members, request.mesh)
    prepared = prepare_data(problem, data, method, request.batch_size, key, local_part(devices))
    check_data_axis(devices, len(prepared.sample.weight), prepared.num_examples, method)
    augmentation, augment_notes = _augmentation(request.augment, method, prepared.sample)
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
        steps=_steps(_with_limits(request, ensemble), method, prepared.per_epoch, pace),
        steps_per_epoch=prepared.per_epoch,
        couples_examples=problem.couples_examples(prepared.sample.x),
        warmup=pace.warmup,
        thin=pace.thin,
        data_axis=DATA if method.full_batch and devices.shape[DATA] > 1 else None,
    )
    method_notes = _coupling_notes(method, task) + _precision_notes(method, problem)
    members = ensemble.bind(task)
    if rule is not None:
        members = rule.prepare(members)
    prepared = fixed.compute(prepared)
    batch_bytes = sum(a.nbytes for a in jax.tree.leaves(prepared.sample)) if prepared.source else None
    minibatches = prepared.minibatches if prepared.source is None and not method.full_batch else None
    sharded = _sharded(request.shard, method, problem, devices)
    program = Program(members, minibatches, devices, batch_bytes, augmentation, sharded)
    notes = (
        _likelihood_notes(problem, prepared.sample)
        + method_notes
        + augment_notes
        + read_notes
        + fixed.notes
        + members.kernel.notes
    )
    return PreparedRun(program, members, prepared, key, rule, notes)


def _as_ensemble(request: RunRequest) -> Ensemble:
    method, chains = request.method, request.chains
    if isinstance(method, Ensemble):
        if chains is not None:
            raise ValueError("chains= and px.Ensemble both set the number of chains: use one of them")
        ensemble = method
    elif not isinstance(method, Method):
        raise TypeError(f"method must be an inference method such as px.VI(q.Normal()) or px.HMC(), got {method!r}")
    elif chains is not None and not method.samples:
        raise ValueError(f"chains= is for samplers; for several runs of {method.name} use px.Ensemble(method, members)")
    elif chains is not None:
        ensemble = Ensemble(method, check_count("chains", chains))
    else:
        ensemble = Ensemble(method, CHAINS if request.until is not None and method.samples else 1)
    if request.record is None:
        return ensemble
    return Ensemble(record_gradients(ensemble.method, request.record), ensemble.members, ensemble.starts)


def _stop_rule(request: RunRequest, method: Method) -> StopRule | None:
    """The rule that may end the run early: the given one, or the one that tells when the method has converged."""
    if request.until is None:
        if request.seconds is not None:
            raise ValueError(
                'seconds= limits a run that ends by itself: add until="converged". A rule has a limit of its own: '
                "stop=px.run.UntilMixed(x, seconds=300)"
            )
        if request.stop is not None and not isinstance(request.stop, StopRule):
            raise TypeError(
                "stop must be px.run.UntilLevel(...), px.evaluation.EarlyStopping(...) or, for samplers, "
                f"px.run.UntilMixed(...); got {request.stop!r}"
            )
        return request.stop
    if request.until != "converged":
        raise ValueError(f'until must be "converged", got {request.until!r}')
    if request.stop is not None:
        raise ValueError("until= and stop= both say when the run ends: use one of them")
    if method.fixed_length:
        raise ValueError(
            f'until="converged" is not for {method.name}, whose posterior is collected until the end of the run: give '
            f"epochs= or steps="
        )
    return UntilMixed(seconds=request.seconds) if method.samples else UntilLevel(seconds=request.seconds)


def _with_limits(request: RunRequest, ensemble: Ensemble) -> RunRequest:
    """The request with a largest length, if it is to run until it has converged and has none."""
    given = (request.epochs, request.steps, request.draws)
    if request.until is None or any(length is not None for length in given):
        return request
    if not ensemble.method.samples:
        return replace(request, steps=MOST_STEPS)
    bytes_per_draw = ensemble.members * sum(leaf.nbytes for leaf in jax.tree.leaves(request.problem.latents))
    return replace(request, draws=fitting(IN_MEMORY_BYTES, bytes_per_draw, MOST_DRAWS))


def _steps(request: RunRequest, method: Method, per_epoch: int, pace: RunLength) -> int:
    """How many steps the run takes."""
    epochs, steps, draws = request.epochs, request.steps, request.draws
    if method.samples:
        if epochs is not None or steps is not None:
            raise ValueError(f"{method.name} is a sampler: give draws=, not epochs= or steps=")
        if draws is None:
            raise ValueError(f"{method.name} is a sampler: give draws=, such as draws=1000")
        return pace.warmup + pace.thin * check_count("draws", draws)
    if draws is not None:
        raise ValueError(f"{method.name} optimises: give either epochs= or steps=, not draws=")
    if (epochs is None) == (steps is None):
        problem = "such as epochs=100" if epochs is None else "not both"
        raise ValueError(f"{method.name} optimises: give either epochs= or steps=, {problem}")
    return check_count("steps", steps) if steps is not None else check_count("epochs", epochs) * per_epoch


def _sharded(shard: str | Sequence[str], method: Method, problem: Problem, mesh: Mesh) -> tuple[str, ...]:
    """The paths of the leaves whose parameters are split over devices."""
    leaves = chosen_leaves(shard, problem)
    if leaves and method.full_batch:
        raise ValueError(
            f"shard= is for methods that use minibatches: {method.name} holds all weights in one vector on each device"
        )
    if leaves and mesh.shape[DATA] == 1:
        raise ValueError(
            "shard= splits parameters over the devices that share the data: "
            "use mesh=px.distributed.mesh(data=...) with several"
        )
    return leaves


def _likelihood_notes(problem: Problem, sample: Batch) -> tuple[str, ...]:
    if not (isinstance(problem.likelihood, Categorical) and outputs_are_probabilities(problem.network, sample.x)):
        return ()
    note = (
        "the network's outputs look like probabilities (at least 0, summing to 1), but Categorical expects logits: "
        "remove the softmax from its last layer"
    )
    warnings.warn(note, stacklevel=4)
    return (note,)


def _precision_notes(method: Method, problem: Problem) -> tuple[str, ...]:
    if not (problem.network.compute and method.full_batch):
        return ()
    note = (
        f"{method.name} computes its energies in {problem.network.compute}: where the posterior is not much wider than "
        f"the rounding of its weights (1/256 of their size), steps shrink and chains stall. Check against float32"
    )
    warnings.warn(note, stacklevel=4)
    return (note,)


def _augmentation(
    augment: Augment | None, method: Method, sample: Batch
) -> tuple[Augmentation | None, tuple[str, ...]]:
    """The augmentation of a run's batches, checked on one of them, and a note on it for the trace."""
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


def _execute(
    prepared: PreparedRun,
    folder: str | os.PathLike[str] | None,
    checkpoint_every: float,
    progress: bool | None,
    watch: Watch | None,
) -> Posterior:
    check_positive("checkpoint_every", checkpoint_every)
    program, name, total = prepared.program, prepared.program.method.name, prepared.program.task.steps
    observers: list[Observer] = [CheckWarmup(program)]
    if watch is not None:
        check_optimises("watch=", program.method)
        observers.append(WatchObserver(watch, program))
    stopping = None if prepared.rule is None else prepared.rule.observer(program)
    observers += [] if stopping is None else [stopping]
    identity = _agreed_identity(prepared, observers, folder)
    with contextlib.ExitStack() as stack:
        checkpoints = None
        if folder is not None:
            with distributed.together("opening the checkpoint"):
                store = stack.enter_context(open_checkpoint(folder, identity))
            checkpoints = SaveCheckpoints(store, checkpoint_every, program, tuple(observers))
        shown = progress if distributed.is_first() else False
        observers.append(ShowProgress(stack.enter_context(Progress(name, total, shown)), tuple(observers)))
        synchronize = SyncProcesses(stack.enter_context(listen()))
        observers.append(StopOnInterrupt(synchronize.stop))
        run = _run(prepared, Supply(prepared.data, program), checkpoints, observers, synchronize)
    posterior = _posterior(prepared, run, [*observers, *([checkpoints] if checkpoints else [])])
    if run.step < total and not (stopping is not None and stopping.asks_to_stop()):
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
    prepared: PreparedRun, observers: Sequence[Observer], folder: str | os.PathLike[str] | None
) -> dict[str, str]:
    """What the run depends on, if it has a checkpoint, or processes that must agree on it."""
    if folder is None and not distributed.several():
        return {}
    program, data = prepared.program, prepared.data
    given = data.arrays if data.given is None else data.given
    identity = run_identity(prepared.members, prepared.key, given, data.sample, program.augment)
    for observer in observers:
        identity |= observer.identity()
    layout = {"steps": str(program.task.steps), "checkpoint": str(folder), "mesh": str(dict(program.mesh.shape))}
    distributed.check_same(identity | layout, "starting the run")
    return identity


def _run(
    prepared: PreparedRun,
    supply: Supply,
    checkpoints: SaveCheckpoints | None,
    observers: list[Observer],
    synchronize: SyncProcesses,
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
    run_steps(program, supply, keys, run, [*observers, *([checkpoints] if checkpoints else [])], synchronize)
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
