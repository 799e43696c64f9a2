"""How costs grow with rows, weights, draws and chains: exponents over two decades.

    seconds = c size^exponent      least squares on logarithms, in each decade

0 means that a larger size costs nothing yet, because overhead is all there is; 1, that twice the size takes twice as
long. All sizes of all cases are timed in turn.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import optax
from rich.table import Table

import posteriax as px
from benchmarks.driver import Driver
from benchmarks.mlp import mlp, mlp_weights
from benchmarks.timing import interleave, make_table, timed
from posteriax import families as q

INPUTS, CLASSES, HIDDEN, ROWS, MOST_ROWS = 20, 10, 50, 1_000, 10_000
STEPS, LEAPFROGS = 10, 20


class Growth(NamedTuple):
    """A cost as a function of one size, two decades of it; `case` makes what takes its seconds once."""

    size: str
    sizes: tuple[int, ...]
    case: Callable[[int], Callable[[], float]]


def report(rounds: int) -> list[Table]:
    cases = {(name, size): g.case(size) for name, g in GROWTHS.items() for size in g.sizes}
    times = interleave({f"{name}: {size}": case for (name, size), case in cases.items()}, rounds)
    seconds = {name: [np.median(times[f"{name}: {size}"]) for size in g.sizes] for name, g in GROWTHS.items()}
    return [table({name: np.array(values) for name, values in seconds.items()})]


def table(seconds: dict[str, np.ndarray]) -> Table:
    """A row for each cost: its seconds at the ends, and its exponent in each decade."""
    ends = "at the smallest, ms", "in the middle", "at the largest"
    title = f"MLP {INPUTS}-{HIDDEN}-{CLASSES} and {ROWS:,} rows, unless these are what grows"
    made = make_table(title, ("grows", "from, to", *ends, "exponent, first decade", "second"))
    for name, values in seconds.items():
        growth, middle = GROWTHS[name], len(values) // 2
        sizes = np.array(growth.sizes)
        made.add_row(
            name,
            growth.size,
            f"{sizes[0]:,}, {sizes[-1]:,}",
            *(f"{1e3 * values[at]:.3g}" for at in (0, middle, -1)),
            f"{exponent(sizes[: middle + 1], values[: middle + 1]):.2f}",
            f"{exponent(sizes[middle:], values[middle:]):.2f}",
        )
    return made


def exponent(sizes: np.ndarray, seconds: np.ndarray) -> float:
    """The slope of the logarithms.

    >>> round(exponent(np.array([10, 30, 100]), np.array([10, 30, 100]) ** 2.0), 6)
    2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def made_up(rows: int, hidden: int = HIDDEN) -> tuple[px.Problem, tuple[np.ndarray, np.ndarray]]:
    """A classification by a network with one hidden layer."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(rows, INPUTS)).astype(np.float32), rng.integers(0, CLASSES, rows)
    return px.Problem((mlp, mlp_weights((INPUTS, hidden, CLASSES))), px.Categorical()), (x, y)


def vi_step(rows: int, hidden: int = HIDDEN) -> Callable[[], float]:
    problem, data = made_up(MOST_ROWS, hidden)
    method = px.VI(q.Normal(), estimator="weight", optimizer=optax.adam(1e-3))
    return Driver(problem, method, data, batch_size=rows).seconds_per_step(STEPS)


def leapfrog(rows: int = ROWS, hidden: int = HIDDEN) -> Callable[[], float]:
    """Masses follow the prior, so that they cost the same for any number of weights."""
    return leapfrogs(*made_up(rows, hidden), chains=1)


def leapfrogs(problem: px.Problem, data: Any, chains: int, together: bool | None = None) -> Callable[[], float]:
    """The seconds in which every chain takes a leapfrog."""
    method = px.HMC(step_size=1e-3, trajectory=1e-3 * (LEAPFROGS - 0.5), jitter=0.0, start="network", warmup=1)
    driver = Driver(problem, method, data, members=chains, together=together)
    return lambda: driver.advance(2)[2] / (2 * LEAPFROGS)


def line_leapfrogs(chains: int, together: bool | None = None) -> Callable[[], float]:
    """Chains of a problem that is all overhead: a line through 20 points, its noise known."""
    x = np.linspace(-1.0, 1.0, 20, dtype=np.float32)[:, None]
    problem = px.Problem((lambda weights, x: x @ weights, np.zeros((1, 1), np.float32)), px.Normal(0.1))
    return leapfrogs(problem, (x, x[:, 0]), chains, together)


def predict(rows: int = ROWS, draws: int = 100) -> Callable[[], float]:
    problem, data = made_up(MOST_ROWS)
    posterior = px.fit(problem, data, px.VI(q.Normal()), steps=1, key=0, progress=False)
    x = data[0][:rows]
    return lambda: timed(lambda: posterior.predict(x, draws=draws, key=0).probs)[1]


def weights(hidden: int) -> int:
    return hidden * (INPUTS + 1 + CLASSES) + CLASSES


CHAINS = (2, 6, 20, 60, 200)
WIDTHS: dict[int, int] = {weights(hidden): hidden for hidden in (30, 95, 300, 950, 3_000)}

GROWTHS = {
    "a step of mean-field VI": Growth("rows of a batch", (30, 100, 300, 1_000, 3_000), vi_step),
    "a step of mean-field VI, 100 rows": Growth("weights", tuple(WIDTHS), lambda size: vi_step(100, WIDTHS[size])),
    "a leapfrog of HMC": Growth("rows", (100, 300, 1_000, 3_000, 10_000), leapfrog),
    "a leapfrog of HMC, 1,000 rows": Growth("weights", tuple(WIDTHS), lambda size: leapfrog(hidden=WIDTHS[size])),
    "a leapfrog of all chains": Growth("chains", CHAINS, lambda size: leapfrogs(*made_up(ROWS), size)),
    "a leapfrog of all chains, together": Growth("chains", CHAINS, lambda size: leapfrogs(*made_up(ROWS), size, True)),
    "a leapfrog of chains of a line": Growth("chains", CHAINS, line_leapfrogs),
    "a leapfrog of chains of a line, together": Growth("chains", CHAINS, lambda size: line_leapfrogs(size, True)),
    "predicting, 100 draws": Growth("rows", (100, 300, 1_000, 3_000, 10_000), predict),
    "predicting, 1,000 rows": Growth("draws", (10, 30, 100, 300, 1_000), lambda size: predict(draws=size)),
}
