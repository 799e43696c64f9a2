"""``px.fit``: prepare a run, drive it with its observers, and return the posterior."""

import contextlib
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import Mesh

from posteriax import distributed
from posteriax._internal.checks import as_key, check_positive
from posteriax._internal.interruption import Interrupted, listen
from posteriax._internal.progress import Progress
from posteriax.methods import Ensemble, Method
from posteriax.posterior import Posterior, join_draws
from posteriax.problem import Problem
from posteriax.run.agreement import Agreement
from posteriax.run.checkpoint import open_checkpoint
from posteriax.run.checkpointing import SaveCheckpoints
from posteriax.run.feeding import Supply
from posteriax.run.gradient_noise import GradientNoise
from posteriax.run.identity import identity_of
from posteriax.run.levelling import StopWhenLevel, UntilLevel
from posteriax.run.loop import Observer, Run, first_bad_leaf, run_steps, trace_of
from posteriax.run.observers import CheckWarmup, ShowProgress, StopOnInterrupt
from posteriax.run.preparing import Length, PreparedRun, prepare_run
from posteriax.run.program import Program
from posteriax.run.sampling_rule import SamplingRule, StopSampling
from posteriax.run.stopping import HeldOut, StopEarly, StoppingRule, hold_out
from posteriax.run.watch import Watch, WatchObserver


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
        agreement = Agreement(stack.enter_context(listen()))
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
    identity = identity_of(prepared.members, prepared.key, given, data.sample, program.augment)
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
    agreement: Agreement,
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
