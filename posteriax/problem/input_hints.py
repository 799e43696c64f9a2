"""What would make a network accept inputs that it fails for, found by trying."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from posteriax.data import channels_first


def input_hint(apply: Callable[..., Any], params: Any, specs: Any) -> str:
    """A sentence on what to do about inputs of these shapes and dtypes, for which `apply` fails; empty if nothing
    that is tried here helps."""
    for sentence, change in TRIALS.items():
        try:
            jax.eval_shape(lambda params, x, change=change: apply(params, change(x)), params, specs)
        except Exception:  # whatever a network raises: this trial is not the answer
            continue
        return f". {sentence}"
    return ""


def _as_floats(x: Any) -> Any:
    return jax.tree.map(lambda a: a.astype(jnp.float32), x)


def _channels_last(x: Any) -> Any:
    return jnp.moveaxis(x, 1, -1)


TRIALS: dict[str, Callable[[Any], Any]] = {
    "It takes floating-point inputs: px.network(net, inputs=px.data.Normalise(mean, std))": _as_floats,
    "It takes its channels first: px.network(net, inputs=px.data.channels_first)": channels_first,
    "It takes floating-point inputs, channels first: px.network(net, inputs=[px.data.Normalise(mean, std), "
    "px.data.channels_first])": lambda x: channels_first(_as_floats(x)),
    "It takes its channels last: x.transpose(0, 2, 3, 1)": _channels_last,
}
