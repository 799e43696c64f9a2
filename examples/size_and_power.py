"""Size and power of the significance test: how often equal, and worse, posteriors are called worse, by score.

Run as ``python examples/size_and_power.py [repetitions]``; it prints the table of docs/metrics.md, in about ten minutes
for 400 repetitions (standard error of a size of 5: 1.1).

A simulated problem with a known truth. Each run of a method has a random error of its own (its seed) and another on
every example; the worse method has more of the latter, or is over-confident.
"""

import sys
from collections.abc import Callable

import numpy as np
from scipy.special import expit, ndtr
from scipy.stats import norm

from posteriax.evaluation.significance import best_and_ties, significantly_differ
from posteriax.metrics.concordance import pairs_by_example

SIZES = (50, 200, 5000)
SEEDS = ((1, 1), (3, 3), (5, 5), (3, 5), (1, 5))
FEATURES = 8  # directions in which a run may be off
RNG = np.random.default_rng(0)

Run = dict[str, np.ndarray]  # by score, its values for each example


def classifiers(n: int, runs: tuple[int, int], *, worse: float = 0.0, sure: float = 1.0) -> tuple[list[Run], ...]:
    """Two methods' runs on the same n examples: the second has more noise, and its logits are multiplied."""
    logit = RNG.normal(0, 1.5, n)
    label = RNG.random(n) < expit(logit)
    reference = expit(logit + 0.2 * RNG.normal(size=n))
    features = RNG.normal(size=(FEATURES, n)) / np.sqrt(FEATURES)

    def run(noise: float, factor: float, several: bool) -> Run:
        run_factor = factor * np.exp(0.05 * RNG.normal()) if several else factor
        off = 0.3 * RNG.normal(size=FEATURES) @ features if several else 0.0
        claimed_logit = run_factor * (logit + off + noise * RNG.normal(size=n))
        p = expit(claimed_logit)
        right = (p > 0.5) == label
        return {
            "accuracy": right.astype(float),
            "nll": -np.log(np.where(label, p, 1 - p)),
            "brier": 2 * np.square(p - label),
            "ece": np.stack([np.maximum(p, 1 - p), right], axis=1).astype(float),
            "agreement": ((p > 0.5) == (reference > 0.5)).astype(float),
            "total_variation": np.abs(p - reference),
        }

    several = max(runs) > 1
    return [run(0.4, 0.9, several) for _ in range(runs[0])], [
        run(0.4 + worse, 0.9 * sure, several) for _ in range(runs[1])
    ]


def regressors(n: int, runs: tuple[int, int], *, worse: float = 0.0, narrow: float = 1.0) -> tuple[list[Run], ...]:
    """Two methods' Gaussian predictions for the same n examples."""
    y = RNG.normal(size=n)
    reference = 0.2 * RNG.normal(size=n)
    features = RNG.normal(size=(FEATURES, n)) / np.sqrt(FEATURES)

    def run(noise: float, scale: float, several: bool) -> Run:
        spread = scale * np.exp(0.05 * RNG.normal()) if several else scale
        off = 0.2 * RNG.normal(size=FEATURES) @ features if several else 0.0
        mean = off + noise * RNG.normal(size=n)
        z = (y - mean) / spread
        return {
            "rmse": np.square(y - mean),
            "nll (numbers)": -norm.logpdf(y, mean, spread),
            "crps": spread * (z * (2 * ndtr(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi)),
            "coverage_90": (np.abs(z) < norm.ppf(0.95)).astype(float),
            "wasserstein": np.abs(mean - reference),
        }

    several = max(runs) > 1
    return [run(0.3, 1.0, several) for _ in range(runs[0])], [run(0.3 + worse, narrow, several) for _ in range(runs[1])]


def survivors(n: int, runs: tuple[int, int], *, worse: float = 0.0) -> tuple[list[Run], ...]:
    """Two methods' predictions of the same n times, of which a third is only known to be longer."""
    log_time = RNG.normal(size=n)
    observed = RNG.random(n) < 2 / 3
    times = np.exp(np.where(observed, log_time, log_time - RNG.exponential(size=n)))
    features = RNG.normal(size=(FEATURES, n)) / np.sqrt(FEATURES)

    def run(noise: float, several: bool) -> Run:
        off = 0.2 * RNG.normal(size=FEATURES) @ features if several else 0.0
        return {"concordance": pairs_by_example(log_time + off + noise * RNG.normal(size=n), times, observed)}

    several = max(runs) > 1
    return [run(1.0, several) for _ in range(runs[0])], [run(1.0 + worse, several) for _ in range(runs[1])]


def honest(low: float, high: float, n: int, off: float = 0.0) -> np.ndarray:
    """(confidence, right) pairs with confidences between two numbers, right more often than claimed by `off`."""
    confidence = RNG.uniform(low, high, n)
    return np.stack([confidence, RNG.random(n) < confidence + off], axis=1).astype(float)


def covering(share: float, n: int) -> np.ndarray:
    return (RNG.random(n) < share).astype(float)


def called(column: str, draw: Callable[[], tuple[list[np.ndarray], list[np.ndarray]]], repetitions: int) -> str:
    calls = [significantly_differ(column, *draw()) for _ in range(repetitions)]
    return f"{100 * np.mean(calls):.1f}"


def print_table(title: str, make: Callable[..., tuple[list[Run], ...]], columns: list[str], repetitions: int) -> None:
    heads = [f"n = {n}, {a} and {b}" for a, b in SEEDS for n in SIZES]
    print(f"\n{title}\n| score | {' | '.join(heads)} |\n| --- |{' ---: |' * len(heads)}")
    for column in columns:
        cells = []
        for runs in SEEDS:
            for n in SIZES:
                draw = lambda runs=runs, n=n, column=column: tuple([r[column] for r in g] for g in make(n, runs))  # noqa: E731
                # pairs of 5,000 examples take long
                fewer = 10 if column == "concordance" and n > 1000 else 1
                cells.append(called(column.split()[0], draw, repetitions // fewer))
        print(f"| {column} | {' | '.join(cells)} |", flush=True)


def print_special(repetitions: int) -> None:
    """Cases in which calibration errors, or coverages, are equal but the predictions differ."""
    cases: dict[str, tuple[str, Callable[[int], tuple[np.ndarray, np.ndarray]]]] = {
        "ece: calibrated, confidences in 0.5 to 1 and 0.94 to 0.99": (
            "ece",
            lambda n: (honest(0.5, 1.0, n), honest(0.94, 0.99, n)),
        ),
        "ece: calibrated, both in 0.5 to 1": ("ece", lambda n: (honest(0.5, 1.0, n), honest(0.5, 1.0, n))),
        "ece: one over-, one under-confident by 0.05": (
            "ece",
            lambda n: (honest(0.5, 0.9, n, 0.05), honest(0.5, 0.9, n, -0.05)),
        ),
        "ece: one over-, one under-confident by 0.1": (
            "ece",
            lambda n: (honest(0.5, 0.9, n, 0.1), honest(0.5, 0.9, n, -0.1)),
        ),
        "coverage: both 0.9": ("coverage_90", lambda n: (covering(0.9, n), covering(0.9, n))),
        "coverage: both 0.85": ("coverage_90", lambda n: (covering(0.85, n), covering(0.85, n))),
        "coverage: 0.85 and 0.95": ("coverage_90", lambda n: (covering(0.85, n), covering(0.95, n))),
        "power, ece: calibrated, and over-confident by 0.1": (
            "ece",
            lambda n: (honest(0.5, 0.9, n), honest(0.5, 0.9, n, -0.1)),
        ),
        "power, coverage: 0.9 and 0.8": ("coverage_90", lambda n: (covering(0.9, n), covering(0.8, n))),
    }
    print(f"\n| one run each | {' | '.join(f'n = {n}' for n in SIZES)} |\n| --- |{' ---: |' * len(SIZES)}")
    for name, (column, draw) in cases.items():
        cells = [called(column, lambda n=n, draw=draw: draw(n), repetitions) for n in SIZES]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def print_many(repetitions: int) -> None:
    """How often any of several equal posteriors is called worse."""
    print("\n| equal posteriors (nll, n = 200) | any called worse |\n| --- | ---: |")
    for count in (2, 4, 8):
        any_called = []
        for _ in range(repetitions):
            shared = RNG.exponential(size=200)
            values = {str(i): {"nll": shared + RNG.normal(size=200)} for i in range(count)}
            any_called.append(len(best_and_ties(values)["nll"]) < count)
        print(f"| {count} | {100 * np.mean(any_called):.1f} |", flush=True)


def main(repetitions: int = 400) -> None:
    classes = ["accuracy", "nll", "brier", "ece", "agreement", "total_variation"]
    numbers = ["rmse", "nll (numbers)", "crps", "coverage_90", "wasserstein"]
    print_table("Size, in %", classifiers, classes, repetitions)
    print_table("Size, in %", regressors, numbers, repetitions)
    print_table("Size, in %", survivors, ["concordance"], repetitions)
    print_special(repetitions)
    print_many(repetitions)
    less = max(repetitions // 4, 50)
    print_table("Power, in %", lambda n, runs: classifiers(n, runs, worse=0.8, sure=2.0), classes, less)
    print_table("Power, in %", lambda n, runs: regressors(n, runs, worse=0.3, narrow=0.7), numbers, less)
    print_table("Power, in %", lambda n, runs: survivors(n, runs, worse=0.5), ["concordance"], less)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
