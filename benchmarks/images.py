"""Steps of convolutional networks, for the race beside PyTorch: batch 128, Adam, random images."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import optax

import posteriax as px
from posteriax import families as q
from posteriax.cli.bench.driver import Driver
from posteriax.cli.bench.timing import ratio_table

BATCH, STEPS = 128, 3


@dataclass(frozen=True)
class ImageRace:
    """MAP and mean-field steps of one network, relative to PyTorch's deterministic step."""

    name: str
    build: Callable[..., Any]
    shape: tuple[int, int, int]

    @property
    def peer(self) -> str:
        return f"PyTorch, {self.name}"

    def cases(self) -> dict[str, Callable[[], float]]:
        rng = np.random.default_rng(0)
        data = rng.normal(size=(4 * BATCH, *self.shape)).astype(np.float32), rng.integers(0, 10, 4 * BATCH)
        problem = px.Problem(self.build(key=jax.random.key(0)), px.Categorical())
        adam = optax.adam(1e-3)
        methods = {
            "MAP": px.MAP(adam),
            "mean-field, one draw": px.VI(q.Normal(), estimator="weight", optimizer=adam),
            "mean-field, auto (flipout)": px.VI(q.Normal(), optimizer=adam),
        }
        return {
            name: Driver(problem, method, data, batch_size=BATCH).seconds_per_step(STEPS)
            for name, method in methods.items()
        }

    def table(self, times: dict[str, np.ndarray]) -> Any:
        return ratio_table(times, self.peer, unit="ms", title=f"One step of {self.name}, batch {BATCH}, Adam")


RESNET20 = ImageRace("ResNet-20-FRN", px.zoo.resnet20, (32, 32, 3))
LENET = ImageRace("LeNet-5", px.zoo.lenet5, (28, 28, 1))
