"""The compiled parts of a run: starting all members, and a chunk of steps of all members.

The number of steps in a chunk is an argument of its program, so that chunks of any length run the same machine code:
how a run is divided into chunks does not change its result, bit for bit. Members are spread over devices first, each
device running its own loop. Members that share a CPU device take turns: each takes all steps of the chunk, in the same
loop as it would run alone (`in_turn`), so that the layout of members does not change the result, bit for bit, either.
Members that share an accelerator are vmapped, which rounds differently for different numbers of members.

Over the mesh's axis "data", sums are added in another order, and results differ by rounding. A full batch is split by
hand, and its samplers sum over the axis. A minibatch is split by the compiler: a kernel's step is written for the whole
batch, the batch is declared to be split, and the compiler divides the work and adds the sums. Noise for each example
has the same values however the batch is split, since JAX derives it from the key and the index in the whole array.

Every member has random streams of its own (`Streams`), whatever device it runs on.
"""

from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike
from jaxtyping import PyTree

from posteriax import distributed
from posteriax._internal import cpu_tuning
from posteriax._internal.memory import CHUNK_BYTES
from posteriax.data.augmentation import Augmentation
from posteriax.data.batches import Batch, Minibatches, full_batch
from posteriax.methods.ensemble import Members
from posteriax.methods.method import Info, State
from posteriax.problem import Latents
from posteriax.run.layout import split_state

STEPS_PER_CHUNK = 1000  # at the most
AUGMENT = 0x617567

States = Any  # of all members: a kernel's State with a leading axis of members
Infos = Any  # what steps recorded: a kernel's Info with leading axes (steps, members)
Draws = Any  # latents with leading axes (draws, members)
DeviceData = Any  # (x, y) on the device; the full Batch; or fed Batches with a leading axis of steps


class Streams(NamedTuple):
    """Independent keys of one member: for its start, its steps, the order of its data, and their augmentation."""

    start: jax.Array
    steps: jax.Array
    order: jax.Array
    augment: jax.Array


def streams(key: jax.Array, member: ArrayLike) -> Streams:
    """The streams of a member, by its index, from the run's key."""
    member_key = jax.random.fold_in(key, member)
    # folded in, not split off: the other streams are the same with and without augmentation
    start, steps, order = jax.random.split(member_key, 3)
    return Streams(start, steps, order, jax.random.fold_in(member_key, AUGMENT))


class Program:
    """Starting and stepping all members of a run.

    Args:
        members: the kernel that they run, how many there are, and where they start.
        minibatches: how batches are taken from data on the device; None for the full batch, or if batches are fed.
        mesh: the devices, with the axes "members" and "data".
        fed: bytes of one batch, if batches come from the host, stacked along a leading axis of steps.
        augment: how the inputs of each batch are augmented before its step.
        shard: the paths of leaves whose parameters are split over the axis "data", for minibatches.
    """

    def __init__(
        self,
        members: Members,
        minibatches: Minibatches | None,
        mesh: Mesh,
        fed: int | None = None,
        augment: Augmentation | None = None,
        shard: tuple[str, ...] = (),
    ):
        self.kernel, self.members, self.starts = members.kernel, members.count, members.starts
        self.task, self.method = self.kernel.task, self.kernel.method
        self.minibatches, self.mesh, self.fed, self.augment = minibatches, mesh, fed is not None, augment
        self.shard = shard
        self.capacity = self._capacity(fed)
        self.platform = mesh.devices.flat[0].platform
        # the compiler splits only what needs it: a program for members alone is the same with and without this
        self.splits_batches = mesh.shape["data"] > 1 and not self.method.full_batch
        takes_turns = members.take_turns(self.platform)
        start: Callable[..., Any] = self._start_in_turn if takes_turns else over_members(self._start_member, shared=2)
        chunk: Callable[..., Any] = self._take_steps_in_turn if takes_turns else self._take_steps
        # for most methods the start only draws and copies
        quick = None if self.method.full_batch else cpu_tuning.options_for_one_run(self.platform)
        options = cpu_tuning.options_for_steps(self.platform)
        self.start: Any
        self.chunk: Any
        if takes_turns and mesh.shape["data"] == 1:
            faster = partial(cpu_tuning.with_fast_operations, platform=self.platform)
            self.start = InThreads(faster(start), mesh, (True, False, False), (0, 0), compiler_options=quick)
            self.chunk = InThreads(
                faster(chunk),
                mesh,
                (True, True, False, False, False),
                (0, 0, 0, 1, 1),
                donate_argnums=1,
                compiler_options=options,
            )
            return
        split, everywhere, second = P("members"), P(), P(None, "members")
        examples = P("data") if self.method.full_batch else everywhere
        by_hand = {"members"} if self.splits_batches else {"members", "data"}
        spread = partial(jax.shard_map, mesh=mesh, axis_names=by_hand, check_vma=False)
        start = spread(start, in_specs=(split, everywhere, examples), out_specs=split)
        chunk = spread(
            chunk,
            in_specs=(split, split, examples, everywhere, everywhere),
            out_specs=(split, split, split, second, second),
        )
        if self.splits_batches:
            start, chunk = self._declaring_states(start, 1), self._declaring_states(chunk, 0)
        self.start = jax.jit(cpu_tuning.with_fast_operations(start, self.platform), compiler_options=quick)
        self.chunk = jax.jit(
            cpu_tuning.with_fast_operations(chunk, self.platform), donate_argnums=1, compiler_options=options
        )

    def begin(self, key: jax.Array, data: DeviceData) -> tuple[Streams, States]:
        """The members' keys and their states before the first step, from the run's key."""
        return self.start(self.place(self._indices, "members"), self.place(key) if distributed.several() else key, data)

    def keys(self, key: jax.Array) -> Streams:
        """The members' keys alone, for a run that is resumed."""
        return self.place(jax.vmap(partial(streams, key))(self._indices), "members")

    def shapes(self, key: jax.Array, data: DeviceData) -> tuple[States, tuple[PyTree, ...]]:
        """The shapes of the states that `begin` returns, and of what `chunk` returns."""
        keys, states = self.start.eval_shape(self._indices, key, data)
        return states, self.chunk.eval_shape(keys, states, data, np.int32(0), np.int32(1))

    @property
    def _indices(self) -> np.ndarray:
        return np.arange(self.members, dtype=np.int32)

    def _capacity(self, fed: int | None) -> int:
        """The largest number of steps in a chunk."""
        bytes_per_step = fed or 1
        if self.method.samples:
            leaves = jax.tree.leaves(self.task.problem.latents)
            bytes_per_step += self.members * sum(leaf.nbytes for leaf in leaves) // self.task.thin
        return int(np.clip(CHUNK_BYTES // bytes_per_step, 1, min(STEPS_PER_CHUNK, self.task.steps)))

    def place(self, tree: PyTree, *over: str | None) -> PyTree:
        """Put arrays on the devices: split along their leading axes over axes of devices, or a copy on each."""
        return distributed.place(tree, self.mesh, P(*over))

    def place_states(self, states: States) -> States:
        """Put states in host memory on the devices, as the program itself leaves them there."""
        if not self.splits_batches:
            return self.place(states, "members")
        specs = self._state_specs(states)
        return jax.tree.map(lambda leaf, spec: distributed.place(leaf, self.mesh, spec), states, specs)

    def _state_specs(self, states: States) -> PyTree:
        """How the states of all members are split: over members, and in parts for the leaves that are sharded."""
        one_member = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), states)
        specs = split_state(one_member, self.shard, self.mesh.shape["data"])
        return jax.tree.map(lambda _, spec: P("members", *spec), states, specs)

    def _declaring_states(self, program: Callable[..., Any], position: int) -> Callable[..., Any]:
        """The program with states that always come back in the same layout: with another it would be compiled again."""

        def declared(*args: PyTree) -> tuple[PyTree, ...]:
            out = list(program(*args))
            shardings = jax.tree.map(
                lambda _, spec: NamedSharding(self.mesh, spec), out[position], self._state_specs(out[position])
            )
            out[position] = jax.lax.with_sharding_constraint(out[position], shardings)
            return tuple(out)

        return declared

    def draws_until(self, step: int) -> int:
        """How many draws the first `step` steps yield."""
        return max(step - self.task.warmup, 0) // self.task.thin

    def _start_member(self, member: jax.Array, key: jax.Array, data: DeviceData) -> tuple[Streams, States]:
        keys = streams(key, member)
        key_start, key_init = jax.random.split(keys.start)
        batch = _fed_batch(data, 0) if self.fed else _as_full_batch(data)
        with cpu_tuning.tracing_for(self.platform):
            state = self.kernel.init(key_init, self.starts.start_of(key_start, member), batch)
        # weak types would compile the chunk twice
        state = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), state)
        return keys, self._placed(state) if self.splits_batches else state

    def _start_in_turn(self, members: jax.Array, key: jax.Array, data: DeviceData) -> tuple[Streams, States]:
        """The keys and states of the members on one device, which start one after another."""
        # traced once, both for the shapes below and for the loop
        start_one = jax.jit(over_members(self._start_member, shared=2))

        def start(member: jax.Array, _: PyTree) -> tuple[Streams, States]:
            # The compiler must not fuse it with putting it in its place among others: that is another loop for another
            # number of members, and a number that q.KTied draws was rounded differently in it.
            return jax.lax.optimization_barrier(start_one(_part_of_member(members, member), key, data))

        shapes = jax.eval_shape(start, jnp.int32(0), None)
        return in_turn(start, _room(shapes, len(members), axis=0), (0, 0), len(members), runs=members[0] >= 0)

    def _placed(self, state: State) -> State:
        """The state, declared to be complete on every device of a group, or in parts for sharded leaves."""
        specs = split_state(state, self.shard, self.mesh.shape["data"])
        return jax.tree.map(
            lambda leaf, spec: jax.lax.with_sharding_constraint(leaf, spec) if jnp.ndim(leaf) else leaf, state, specs
        )

    def _step_member(
        self, keys: Streams, state: State, order: jax.Array, step: jax.Array, first: jax.Array, data: DeviceData
    ) -> tuple[State, Info, Latents | None]:
        if self.fed:
            batch = _fed_batch(data, step - first)
        elif self.minibatches is None:
            batch = _as_full_batch(data)
        else:
            batch = self.minibatches.take(data, order, step % self.minibatches.per_epoch)
        if self.splits_batches:
            batch = _constrained(batch, P("data"))
        if self.augment is not None:
            batch = batch._replace(x=self.augment(jax.random.fold_in(keys.augment, step), batch.x))
        with cpu_tuning.tracing_for(self.platform):
            state, info = self.kernel.step(jax.random.fold_in(keys.steps, step), state, batch)
        if self.splits_batches:
            state, info = self._placed(state), _constrained(info, P())
        return state, info, self.kernel.draw(state) if self.method.samples else None

    def _take_steps(
        self, keys: Streams, states: States, data: DeviceData, first: jax.Array, last: jax.Array
    ) -> tuple[States, jax.Array, jax.Array, Infos, Draws]:
        """Steps `first` to `last` of members that step together; ends early at a non-finite value.

        Returns the states, the step reached and whether all values are finite, and what every step
        recorded and drew, with leading axes (capacity, members); of draws, one for every `thin` steps. A draw that is
        not yet due at the end of the chunk is the last of them, and becomes the first of the next chunk.
        """
        minibatches, warmup, thin = self.minibatches, self.task.warmup, self.task.thin
        per_epoch, size = (minibatches.per_epoch, minibatches.size) if minibatches is not None else (1, 0)

        def step_member(keys: Streams, state: State, order: jax.Array, step: jax.Array) -> PyTree:
            return self._step_member(keys, state, order, step, first, data)

        # traced once, both for the shapes below and for the loop
        all_members = jax.jit(over_members(step_member, shared=1))
        order = jnp.zeros((len(keys.order), per_epoch, size), jnp.int32)
        shapes = jax.eval_shape(all_members, keys, states, order, first)[1:]
        lengths = (self.capacity, self.capacity // thin + 2)
        room = tuple(
            jax.tree.map(lambda s, n=n: jnp.zeros((n, *s.shape), s.dtype), shape)
            for n, shape in zip(lengths, shapes, strict=True)
        )
        draws_before = jnp.maximum(first - warmup, 0) // thin

        def data_order(keys: Streams, epoch: jax.Array) -> jax.Array:
            return minibatches.order(keys.order, epoch)  # type: ignore[union-attr]

        def going(carry: tuple[PyTree, ...]) -> jax.Array:
            step, _, _, well, _ = carry
            return (step < last) & well

        def advance(carry: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
            step, states, order, _, room = carry
            if minibatches is not None:
                new = lambda: over_members(data_order, shared=1)(keys, step // per_epoch)  # noqa: E731
                order = jax.lax.cond((step % per_epoch == 0) | (step == first), new, lambda: order)
            states, info, drawn = all_members(keys, states, order, step)
            draw = jnp.maximum(step - warmup, 0) // thin - draws_before
            room = (_put(room[0], info, step - first), _put(room[1], drawn, draw))
            well = jnp.isfinite(info[0]).all()
            if self.splits_batches and self.mesh.shape["members"] > 1:
                well = jax.lax.pmin(well, "members")  # devices may wait for each other: all stop at the same step
            return step + 1, states, order, well, room

        carry = (first, states, order, jnp.array(True), room)
        reached, states, _, well, (infos, drawn) = jax.lax.while_loop(going, advance, carry)
        return states, reached[None], well[None], infos, drawn

    def _take_steps_in_turn(
        self, keys: Streams, states: States, data: DeviceData, first: jax.Array, last: jax.Array
    ) -> tuple[States, jax.Array, jax.Array, Infos, Draws]:
        """`_take_steps` for each member on one device in turn; the step reached and `well` are given for each.

        After a non-finite value of one, the others go no further than the step at which it stopped.
        """
        count = len(keys.order)
        take_one = jax.jit(self._take_steps)  # traced once, both for the shapes below and for the loop

        def take(member: jax.Array, room: PyTree) -> tuple[PyTree, ...]:
            states, reached, *_ = room
            member_keys, member_state = _part_of_member((keys, states), member)
            return take_one(member_keys, member_state, data, first, reached.min())

        before = (states, jnp.full(count, last), jnp.ones(count, bool))
        *_, infos, drawn = jax.eval_shape(take, jnp.int32(0), before)
        room = (*before, _room(infos, count, axis=1), _room(drawn, count, axis=1))
        return in_turn(take, room, (0, 0, 0, 1, 1), count, runs=first < last)


class InThreads:
    """A program for one device's members, which threads run for all CPU devices of this process at once.

    It is compiled once, for the first of these devices, and called by as many threads as there are devices: they share
    cores and memory, and XLA runs calls of several threads side by side. So a member's machine code is the same on one
    device, on many, and in several processes. (`shard_map` over two or more devices is another compilation than over
    one: XLA's partitioner merges common subexpressions before the optimisations that follow, which then fuse other
    operations, and round differently. For HMC of an MLP 784-400-400-10 they did.)

    Arguments and results are arrays on the mesh, as they are for `shard_map`.

    Args:
        function: takes one device's part of every argument; returns a tuple.
        mesh: the devices. Its axis "data" has length 1.
        split: for each argument, whether its leading axis is split over the devices; each has a copy of others.
        out_axes: for each result, which axis is the members'.
        donate_argnums: the argument whose memory is given to the results.
        compiler_options: for `jax.jit`.

    >>> mesh = jax.make_mesh((1, 1), ("members", "data"))
    >>> sums = InThreads(lambda a, b: (a + b,), mesh, (True, False), (0,))
    >>> sums(jnp.arange(3), jnp.int32(1))[0].tolist()
    [1, 2, 3]
    """

    def __init__(
        self,
        function: Callable[..., tuple[PyTree, ...]],
        mesh: Mesh,
        split: tuple[bool, ...],
        out_axes: tuple[int, ...],
        donate_argnums: int | None = None,
        compiler_options: dict[str, Any] | None = None,
    ):
        self.mesh, self.split, self.out_axes, self.donated = mesh, split, out_axes, donate_argnums
        self.jitted = jax.jit(function, donate_argnums=donate_argnums, compiler_options=compiler_options)
        self.devices = [device for device in mesh.devices.flat if device.process_index == jax.process_index()]
        self.threads = ThreadPoolExecutor(len(self.devices), "members")
        self.compiled: dict[Hashable, jax.stages.Compiled] = {}  # by the types of the arguments

    def __call__(self, *args: PyTree) -> tuple[PyTree, ...]:
        parts = [self._parts(args, device) for device in self.devices]
        run = self._compile(parts[0])
        if len(parts) == 1:
            results = [run(*parts[0])]
        else:
            # a thread waits for its results: calls of one thread would run one after another
            results = list(self.threads.map(lambda part: jax.block_until_ready(run(*part)), parts))
        if self.donated is not None:
            jax.tree.map(lambda leaf: leaf.delete(), args[self.donated])
        placed = [jax.device_put(result, device) for result, device in zip(results, self.devices, strict=True)]
        return tuple(
            jax.tree.map(partial(self._joined, axis), *shards)
            for axis, *shards in zip(self.out_axes, *placed, strict=True)
        )

    def lower(self, *args: PyTree) -> jax.stages.Lowered:
        """The program of the first device, as `jax.jit` lowers it."""
        return self.jitted.lower(*self._parts(args, self.devices[0]))

    def eval_shape(self, *args: PyTree) -> tuple[PyTree, ...]:
        """The shapes of the results, given arguments or their shapes."""
        count = self.mesh.shape["members"]

        def resized(
            leaf: jax.Array | jax.ShapeDtypeStruct, axis: int, change: Callable[[int], int]
        ) -> jax.ShapeDtypeStruct:
            shape = list(np.shape(leaf))
            shape[axis] = change(shape[axis])
            return jax.ShapeDtypeStruct(shape, leaf.dtype)

        parts = [
            jax.tree.map(partial(resized, axis=0, change=lambda n: n // count), arg) if split else arg
            for arg, split in zip(args, self.split, strict=True)
        ]
        return tuple(
            jax.tree.map(partial(resized, axis=axis, change=lambda n: n * count), result)
            for result, axis in zip(self.jitted.eval_shape(*parts), self.out_axes, strict=True)
        )

    def _parts(self, args: tuple[PyTree, ...], device: jax.Device) -> tuple[PyTree, ...]:
        """One device's part of each argument, moved to where the program runs: the first device."""
        first = self.devices[0]

        def part(leaf: ArrayLike, owner: jax.Device) -> jax.Array:
            shards = leaf.addressable_shards if isinstance(leaf, jax.Array) else ()
            held = [shard.data for shard in shards if shard.device == owner]
            return jax.device_put(held[0] if held else leaf, first)

        return tuple(
            jax.tree.map(partial(part, owner=device if split else first), arg)
            for arg, split in zip(args, self.split, strict=True)
        )

    def _compile(self, args: tuple[PyTree, ...]) -> jax.stages.Compiled:
        """The program for arguments of these types. In this thread: others do not see the caller's `jax.config`."""
        leaves, structure = jax.tree.flatten(args)
        types = structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        if types not in self.compiled:
            self.compiled[types] = self.jitted.lower(*args).compile()
        return self.compiled[types]

    def _joined(self, axis: int, *shards: jax.Array) -> jax.Array:
        """An array on the mesh, joined from what each device has."""
        shape = list(shards[0].shape)
        shape[axis] *= self.mesh.shape["members"]
        sharding = NamedSharding(self.mesh, P(*[None] * axis, "members"))
        return jax.make_array_from_single_device_arrays(tuple(shape), sharding, list(shards))


def over_members(function: Callable[..., Any], *, shared: int) -> Callable[..., Any]:
    """Map over the leading axis of all arguments but the last `shared` ones; a single member is not vmapped."""

    def mapped(*args: PyTree) -> PyTree:
        by_member, common = args[: len(args) - shared], args[len(args) - shared :]
        if jax.tree.leaves(by_member)[0].shape[0] == 1:
            # reshapes are free; indexing would copy all states at every step
            result = function(*jax.tree.map(lambda leaf: leaf.reshape(leaf.shape[1:]), by_member), *common)
            return jax.tree.map(lambda leaf: jnp.asarray(leaf).reshape(1, *jnp.shape(leaf)), result)
        return jax.vmap(function, in_axes=(0,) * len(by_member) + (None,) * shared)(*by_member, *common)

    return mapped


def in_turn(
    function: Callable[[jax.Array, PyTree], PyTree],
    room: tuple[PyTree, ...],
    axes: tuple[int, ...],
    members: int,
    runs: jax.Array,
) -> tuple[PyTree, ...]:
    """Fill a tuple with what a function returns for one member after another.

    A member's bits do not depend on how many take turns: the function computes with arrays of one member, and is always
    the body of a loop whose length the compiler does not know. With a length of 1 known to it, the compiler would
    dissolve the loop, and what it then fuses, and so rounds together, may differ from what it fuses inside.

    Args:
        function: of a member's index and the tuple so far. Its results have length 1 along the members' axis.
        room: arrays for the results of all members.
        axes: which axis is the members', for each item of the tuple.
        members: how many there are.
        runs: true, but not a constant: this hides the length.

    >>> double = lambda member, room: (2 * jnp.arange(3)[member][None],)
    >>> in_turn(double, (jnp.zeros(3, int),), (0,), 3, runs=jnp.bool_(True))[0].tolist()
    [0, 2, 4]
    """

    def going(carry: tuple[jax.Array, PyTree]) -> jax.Array:
        return (carry[0] < members) & runs

    def advance(carry: tuple[jax.Array, PyTree]) -> tuple[jax.Array, PyTree]:
        member, room = carry
        new = function(member, room)
        put = [
            jax.tree.map(lambda a, b, axis=axis: _replaced(a, b, member, axis), old, values)
            for old, values, axis in zip(room, new, axes, strict=True)
        ]
        return member + 1, tuple(put)

    return jax.lax.while_loop(going, advance, (jnp.int32(0), tuple(room)))[1]


def _part_of_member(tree: PyTree, member: jax.Array) -> PyTree:
    """One member's part of arrays with a leading axis of members, which it keeps, with length 1."""
    # an index that cannot be negative saves three operations a leaf
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, member, 1, allow_negative_indices=False), tree)


def _replaced(array: jax.Array, part: jax.Array, member: jax.Array, axis: int) -> jax.Array:
    """The array with one member's part, of length 1 along the axis, replaced."""
    start = [member if i == axis else jnp.zeros_like(member) for i in range(array.ndim)]  # of one type, also with x64
    return jax.lax.dynamic_update_slice(array, part, start, allow_negative_indices=False)


def _room(shapes: PyTree, members: int, axis: int) -> PyTree:
    """Arrays for the results of all members, given the shapes of a single one's. `lax.full` can make keys, too."""

    def make(single: jax.ShapeDtypeStruct) -> jax.Array:
        shape = (*single.shape[:axis], members, *single.shape[axis + 1 :])
        return jax.lax.full(shape, 0, single.dtype)

    return jax.tree.map(make, shapes)


def _constrained(tree: PyTree, spec: P) -> PyTree:
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, spec) if jnp.ndim(leaf) else leaf, tree)


def _put(buffers: PyTree, values: PyTree, index: jax.Array) -> PyTree:
    return jax.tree.map(lambda buffer, value: buffer.at[index].set(value), buffers, values)


def _as_full_batch(data: DeviceData) -> Batch:
    return data if isinstance(data, Batch) else full_batch(data)


def _fed_batch(data: Batch, index: ArrayLike) -> Batch:
    return jax.tree.map(lambda a: a[index], data)
