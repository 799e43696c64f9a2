"""Keras 3 on JAX: a built model or layer, called by ``stateless_call``. Its trainable variables are the params."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax

from posteriax.networks.adapters.adapter import (
    Adapted,
    BatchStatistics,
    Call,
    Inputs,
    OptionalKey,
    Outputs,
    Params,
    Statistics,
)

ACCEPTS = "a Keras model on JAX"


def adapt(obj: Any, call: Mapping[str, Any]) -> Adapted | None:
    keras: Any = sys.modules.get("keras")
    if keras is None or not isinstance(obj, keras.Layer):
        return None
    _check(keras, obj)
    names = _names(obj.trainable_variables, obj.name)
    others = obj.non_trainable_variables
    seeds = [i for i, v in enumerate(others) if v.path.endswith("seed_generator_state")]
    norms = [layer for layer in obj._flatten_layers() if isinstance(layer, keras.layers.BatchNormalization)]
    positions = {id(v): i for i, v in enumerate(others)}
    moving = [positions[id(v)] for norm in norms for v in (norm.moving_mean, norm.moving_variance)]
    calling = Call.of(type(obj).call, call)

    def run(params: Params, held: list[Any], x: Inputs, key: OptionalKey) -> tuple[Any, list[Any]]:
        if key is not None:
            for n, i in enumerate(seeds):
                held = [*held[:i], jax.random.key_data(jax.random.fold_in(key, n)), *held[i + 1 :]]
        inputs, keywords = calling.arguments(x)
        keywords.pop("training", None)
        if calling.takes("training", by_keywords=True):
            keywords["training"] = key is not None
        return obj.stateless_call([params[name] for name in names], held, *inputs, **keywords)

    def stored() -> list[Any]:
        return [v.value for v in others]

    def apply(params: Params, x: Inputs, *, key: OptionalKey = None) -> Outputs:
        with _norm_layers(norms, training=bool(calling.fixed.get("training", False))):
            return run(params, stored(), x, key)[0]

    def measure(params: Params, x: Inputs) -> Statistics:
        with _norm_layers(norms, training=True, momentum=0.0):
            changed = run(params, stored(), x, None)[1]
        return [changed[i] for i in moving]

    def apply_stored(params: Params, statistics: Statistics, x: Inputs) -> Outputs:
        held = stored()
        for i, value in zip(moving, statistics, strict=True):
            held[i] = value
        with _norm_layers(norms, training=False):
            return run(params, held, x, None)[0]

    params = dict(zip(names, (v.value for v in obj.trainable_variables), strict=True))
    use_stored = 'px.network(model) without call={"training": True}'
    known = BatchStatistics([stored()[i] for i in moving], measure, apply_stored, use_stored)
    return Adapted(apply, params, batch_statistics=known if norms else None)


def _check(keras: Any, model: Any) -> None:
    backend = keras.backend.backend()
    if backend != "jax":
        raise ValueError(
            f"Keras runs on {backend}, but posteriax needs JAX: set the environment variable KERAS_BACKEND=jax before "
            f"keras is first imported"
        )
    if not model.built:
        raise ValueError(
            f"the Keras model {model.name} has no variables yet: call it on some inputs, or start it with keras.Input"
        )


def _names(variables: list[Any], model: str) -> list[str]:
    """The paths of the variables within the model, numbered if they repeat."""
    names: list[str] = []
    for variable in variables:
        path = variable.path.removeprefix(f"{model}/")
        name, n = path, 1
        while name in names:
            name, n = f"{path}_{n}", n + 1
        names.append(name)
    return names


@contextmanager
def _norm_layers(norms: list[Any], *, training: bool, momentum: float | None = None) -> Iterator[None]:
    """A context in which batch normalisation uses the batch's or the stored statistics, whatever the model says."""
    before = [(norm, norm.call, norm.momentum) for norm in norms]

    def forced(call: Any) -> Any:
        return lambda inputs, training=None, mask=None, *, on=training: call(inputs, training=on, mask=mask)

    try:
        for norm, call, _ in before:
            object.__setattr__(norm, "call", forced(call))
            norm.momentum = norm.momentum if momentum is None else momentum
        yield
    finally:
        for norm, _, own_momentum in before:
            object.__delattr__(norm, "call")
            norm.momentum = own_momentum
