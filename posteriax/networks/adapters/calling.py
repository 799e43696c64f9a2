"""How to call a network: inputs, training flag and randomness, read off its signature.

- **Inputs.** A dict whose keys are arguments of the call is passed by name; a tuple, if the call requires several
  inputs, by position; anything else is the first argument, or the only required keyword argument.
- **Training flags.** With a key, that is in training, ``train``, ``training`` and ``is_training`` are True, and
  ``deterministic`` and ``inference`` are False; without a key it is the other way round.
- **Randomness.** The key is passed as ``key``, ``rng`` or ``rngs``.

Arguments that the user fixes (``px.network(net, call={"train": True})``) are left alone.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

TRAINING_FLAGS = {"train": True, "training": True, "is_training": True, "deterministic": False, "inference": False}
KEYS = ("key", "rng", "rngs")


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
    def of(cls, function: Callable[..., Any], fixed: Mapping[str, Any], *, skip: int = 1, own: Any = ()) -> "Call":
        """Read a function's signature, without its first `skip` parameters and those named in `own`."""
        parameters = list(inspect.signature(function).parameters.items())[skip:]
        call = cls({name: p for name, p in parameters if name not in own}, dict(fixed))
        unknown = [name for name in fixed if name not in call.parameters]
        if unknown and not call._takes(inspect.Parameter.VAR_KEYWORD):
            raise ValueError(f"call= names {', '.join(unknown)}, but the network's call takes {call.names}")
        return call

    @property
    def names(self) -> str:
        return ", ".join(self.parameters) or "nothing"

    def _takes(self, kind: Any) -> bool:
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

    def arguments(self, x: Any, *, training: bool | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
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
