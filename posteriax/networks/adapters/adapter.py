"""What adapters share: the network that they return, its batch statistics, and how to call it.

In training, batch normalisation uses the statistics of the current batch; for predictions they should be those of the
training data under the weights that predict. Frameworks keep a moving average over the training run instead, which is
wrong for any single draw. So an adapter says how to measure statistics, and how to normalise by given ones.

How a network wants to be called is read off its signature:

- **Inputs.** A dict whose keys are arguments of the call is passed by name; a tuple, if the call requires several
  inputs, by position; anything else is the first argument, or the only required keyword argument.
- **Training flags.** With a key, that is in training, ``train``, ``training`` and ``is_training`` are True, and
  ``deterministic`` and ``inference`` are False; without a key it is the other way round.
- **Randomness.** The key is passed as ``key``, ``rng`` or ``rngs``.

Arguments that the user fixes (``px.network(net, call={"train": True})``) are left alone.
"""

import inspect
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from posteriax._internal.memory import Inputs

Params = Any  # a pytree of arrays
Outputs = Any  # an array with a leading axis of examples, unless the network takes one example
Statistics = Any  # a pytree of arrays: the means and variances of all normalisation layers
OptionalKey = jax.Array | None  # of the network's own randomness; None for a deterministic pass
AxisName = Hashable  # of the examples, for batch normalisation inside vmap

TRAINING_FLAGS = {"train": True, "training": True, "is_training": True, "deterministic": False, "inference": False}
KEYS = ("key", "rng", "rngs")


class BatchStatistics(NamedTuple):
    """Extra functions of a network with batch normalisation.

    Args:
        stored: the statistics stored in the network.
        measure: ``measure(params, x)``: the statistics of a batch.
        apply: ``apply(params, statistics, x)``: the outputs, normalised by `statistics`.
        use_stored: how the user makes the network normalise by its stored statistics, in words.
    """

    stored: Statistics
    measure: Callable[[Params, Inputs], Statistics]
    apply: Callable[[Params, Statistics, Inputs], Outputs]
    use_stored: str


class Adapted(NamedTuple):
    """A network of some library as a pure function.

    Args:
        apply: ``apply(params, x, *, key=None) -> outputs``.
        params: its params.
        batched: whether `apply` takes a batch or one example.
        out_axis: the output axis of a weight, by the library's convention.
        batch_statistics: of its batch normalisation, if any; always for batches.
        axis_name: name of the axis of examples, if `apply` takes one example.
        fixed: paths of the leaves that the library says are not to be trained.
    """

    apply: Callable[..., Outputs]
    params: Params
    batched: bool = True
    out_axis: int = -1
    batch_statistics: BatchStatistics | None = None
    axis_name: AxisName = "batch"
    fixed: tuple[str, ...] = ()


def over_examples(apply: Callable[..., Outputs], axis_name: AxisName = "batch") -> Callable[..., Outputs]:
    """Apply a network that takes one example to a batch, with a separate key for each example."""

    def apply_batch(params: Params, x: Inputs, *, key: OptionalKey = None) -> Outputs:
        if key is None:
            return jax.vmap(lambda example: apply(params, example), axis_name=axis_name)(x)
        keys = jax.random.split(key, jax.tree.leaves(x)[0].shape[0])
        return jax.vmap(lambda example, k: apply(params, example, key=k), axis_name=axis_name)(x, keys)

    return apply_batch


@dataclass(frozen=True)
class Call:
    """The arguments of a network's call.

    Args:
        parameters: of its signature, by name, without those that the library fills in.
        fixed: keyword arguments for every call.
    """

    parameters: Mapping[str, inspect.Parameter]
    fixed: Mapping[str, Any]

    @classmethod
    def of(
        cls, function: Callable[..., Any], fixed: Mapping[str, Any], *, skip: int = 1, without: Collection[str] = ()
    ) -> "Call":
        """Read a function's signature, without its first `skip` parameters and those named in `without`."""
        parameters = list(inspect.signature(function).parameters.items())[skip:]
        call = cls({name: p for name, p in parameters if name not in without}, dict(fixed))
        unknown = [name for name in fixed if name not in call.parameters]
        if unknown and not call._takes(inspect.Parameter.VAR_KEYWORD):
            raise ValueError(f"call= names {', '.join(unknown)}, but the network's call takes {call.names}")
        return call

    @property
    def names(self) -> str:
        return ", ".join(self.parameters) or "nothing"

    def _takes(self, kind: inspect._ParameterKind) -> bool:
        return any(p.kind is kind for p in self.parameters.values())

    def takes(self, name: str, *, by_keywords: bool = False) -> bool:
        """Whether the call has an argument of this name or, with `by_keywords`, takes any keyword argument."""
        return name in self.parameters or (by_keywords and self._takes(inspect.Parameter.VAR_KEYWORD))

    @property
    def has_training_flag(self) -> bool:
        """Whether the call has a training flag, fixed or not."""
        return any(name in self.parameters for name in TRAINING_FLAGS)

    @property
    def without_fixed_flags(self) -> "Call":
        """The same call without fixed training flags, for networks whose batch normalisation is set separately."""
        return Call(self.parameters, {name: value for name, value in self.fixed.items() if name not in TRAINING_FLAGS})

    @property
    def stored_flag(self) -> str:
        """How to fix the training flag such that batch normalisation uses its stored statistics; empty without one."""
        off = {name: not on for name, on in TRAINING_FLAGS.items() if name in self.parameters}
        return next((f'px.network(net, call={{"{name}": {value}}})' for name, value in off.items()), "")

    def training_flags(self, *, training: bool) -> dict[str, bool]:
        """Values for the training flags that the user has not fixed."""
        return {
            name: on is training
            for name, on in TRAINING_FLAGS.items()
            if name in self.parameters and name not in self.fixed
        }

    def trains_by_default(self) -> bool:
        """Whether the call is in training mode by default; False if its flag has no default."""
        for name, on in TRAINING_FLAGS.items():
            if name in self.fixed:
                return bool(self.fixed[name]) is on
            default = self.parameters[name].default if name in self.parameters else None
            if isinstance(default, bool):
                return default is on
        return False

    def arguments(self, x: Inputs, *, training: bool | None = None) -> tuple[tuple[Inputs, ...], dict[str, Any]]:
        """Positional and keyword arguments for the inputs `x`, including fixed ones, and training flags if given."""
        fixed = (self.training_flags(training=training) if training is not None else {}) | dict(self.fixed)
        inputs = {
            name: p
            for name, p in self.parameters.items()
            if name not in (*TRAINING_FLAGS, *KEYS, *fixed) and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        }
        required = [name for name, p in inputs.items() if p.default is p.empty]
        by_position = [name for name, p in inputs.items() if p.kind is not p.KEYWORD_ONLY]
        if isinstance(x, Mapping):
            if set(x) <= set(inputs) or (not inputs and self._takes(inspect.Parameter.VAR_KEYWORD)):
                return (), {**x, **fixed}
            if len(required) > 1:
                raise TypeError(
                    f"x is a dict with the keys {', '.join(map(str, x))}, but the network's call takes "
                    f"{', '.join(inputs)}: use the names of its arguments"
                )
        needed = [name for name in required if name in by_position]
        if isinstance(x, tuple | list) and 1 < len(needed) <= len(x) <= len(by_position):
            return tuple(x), fixed
        if not by_position and len(required) == 1 and not self._takes(inspect.Parameter.VAR_POSITIONAL):
            return (), {required[0]: x, **fixed}
        return (x,), fixed
