"""From the arguments of `px.fit` to a run that can start: everything is checked here, before anything is compiled."""

import warnings
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from posteriax._internal.checks import as_key, check_count
from posteriax.data import Augmentation, Batch
from posteriax.distributed import DATA
from posteriax.families.arrays import spec_of_example
from posteriax.methods import Ensemble, Members, Method, RunLength, Task
from posteriax.problem import Problem
from posteriax.run.device_mesh import check_data_axis, members_mesh, own_part
from posteriax.run.feeding import PreparedData, prepare_data
from posteriax.run.fixed_features import plan_fixed_part
from posteriax.run.gradient_noise import GradientNoise, record_gradients
from posteriax.run.levelling import fall_when_level
from posteriax.run.program import Program
from posteriax.run.sharding import chosen_leaves


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
