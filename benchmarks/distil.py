"""A teacher, one network distilled from it, and one network trained alone: scores, distance, and time to predict.

    python -m benchmarks distil --set moons --set concrete --set fashion       # by default all

Teachers: two moons, HMC on an MLP 2-32-32-2; UCI concrete, an ensemble of 10 networks 8-50-2 that predict mean and
noise; Fashion-MNIST, an ensemble of 10 MLPs 784-200-200-10 on 20,000 images. Students have the same networks, or wider
ones: 128-128, 200-200, 400-400. From elsewhere are points around the moons; concrete's test rows moved by 4 standard
deviations in a random direction; MNIST. Half of the test set is held out for the conformal guarantee, and the scores
are of the other half. Needs Fashion-MNIST, MNIST and the UCI data (docs/data.md), in the folder that
POSTERIAX_DATA names.
"""

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.table import Table

import posteriax as px
from benchmarks.timing import interleave, make_table, timed
from posteriax import priors as p
from posteriax.evaluation.robustness.conformal import held_by_conformal

MEMBERS = 10


class Case(NamedTuple):
    teacher: Any
    single: Any  # one network, trained alone
    wide: Any  # a larger network for a second student
    x: np.ndarray
    test: tuple[np.ndarray, np.ndarray]
    elsewhere: np.ndarray


def moons() -> Case:
    data, test = px.data.two_moons()
    net = px.zoo.mlp(inputs=2, hidden=(32, 32), classes=2, key=jax.random.key(0))
    problem = px.Problem(px.network(net, example=data[0]), px.Categorical(), prior=p.HeNormal())
    teacher = px.fit(problem, data, px.HMC(warmup=200), draws=100, chains=2, key=0, progress=False)
    single = px.fit(problem, data, px.MAP(), steps=2000, key=1, progress=False)
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 1000)
    around = np.column_stack([0.5 + 4 * np.cos(angle), 0.25 + 4 * np.sin(angle)]).astype(np.float32)
    wide = px.zoo.mlp(inputs=2, hidden=(128, 128), classes=2, key=jax.random.key(1))
    return Case(teacher, single, wide, data[0], test, around)


def concrete() -> Case:
    data = px.data.load("uci/concrete", split=0)
    net = px.zoo.uci_mlp(inputs=8, hidden=(50,), key=jax.random.key(0))
    problem = px.Problem(px.network(net, example=data.train[0]), px.Normal("predicted"), prior=p.HeNormal())
    teacher = px.fit(problem, data.train, px.Ensemble(px.MAP(), MEMBERS), steps=3000, key=0, progress=False)
    single = px.fit(problem, data.train, px.MAP(), steps=3000, key=1, progress=False)
    x_test = np.asarray(data.test[0])
    direction = np.random.default_rng(0).normal(size=x_test.shape)
    moved = x_test + 4 * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    wide = px.zoo.uci_mlp(inputs=8, hidden=(200, 200), outputs=3, key=jax.random.key(1))
    return Case(teacher, single, wide, data.train[0], data.test, moved.astype(np.float32))


def fashion() -> Case:
    data = px.data.load("fashion_mnist").first(20_000, 10_000)
    net = px.zoo.mlp(hidden=(200, 200), key=jax.random.key(0))
    problem = px.Problem(px.network(net, example=data.train[0]), px.Categorical(), prior=p.HeNormal())
    length: dict[str, Any] = {"epochs": 10, "batch_size": 128, "progress": False}
    teacher = px.fit(problem, data.train, px.Ensemble(px.MAP(), MEMBERS), key=0, **length)
    single = px.fit(problem, data.train, px.MAP(), key=1, **length)
    digits = px.data.load("mnist").first(10, 5000).test[0]
    wide = px.zoo.mlp(hidden=(400, 400), key=jax.random.key(1))
    return Case(teacher, single, wide, data.train[0], data.test, np.asarray(digits))


CASES = {"moons": moons, "concrete": concrete, "fashion": fashion}


def report(rounds: int, sets: Sequence[str]) -> list[Table]:
    return [table(name, CASES[name](), rounds) for name in sets or CASES]


def table(name: str, case: Case, rounds: int) -> Table:
    x_test, y_test = case.test
    half = len(y_test) // 2
    held, test = (x_test[:half], y_test[:half]), (x_test[half:], y_test[half:])
    distil = lambda net: px.distil(case.teacher, case.x, net=net, held_out=held, shifted=case.elsewhere)  # noqa: E731
    (student, seconds), (wide, _) = timed(lambda: distil(None)), timed(lambda: distil(case.wide))
    print(name, f"distilled in {seconds:.0f} s", student.report(), sep="\n", file=sys.stderr, flush=True)
    models = {
        f"teacher, {case.teacher.support} draws": case.teacher,
        "distilled": student,
        "distilled, wider": wide,
        "one network, alone": case.single,
    }
    times = interleave(
        {n: lambda m=m: timed(lambda: m.predict(test[0], reduce=True))[1] for n, m in models.items()}, rounds
    )
    target = case.teacher.predict(test[0])
    classes = target.confidence() is not None
    scores = ("accuracy", "nll", "ece") if classes else ("rmse", "nll", "coverage_90")
    distance = "total variation" if classes else "Wasserstein / std"
    columns = (
        *scores,
        distance,
        "AUROC, total",
        "AUROC, knowledge",
        "90 % conformal",
        "µs an example",
        "over one network",
    )
    result = make_table(f"{name}: distilled in {seconds:.0f} s", columns)
    for label, model in models.items():
        predictive, far = model.predict(test[0]), model.predict(case.elsewhere)
        values = px.evaluate(predictive, test[1], scores=list(scores))
        distances = px.evaluation.distances(predictive, target)
        found = px.evaluation.ood_detection(predictive, far)
        total = found["entropy" if classes else "std"].auroc
        knowledge = auroc(knowledge_of(predictive), knowledge_of(far))
        calibrated = px.evaluation.conformal(model.predict(held[0]), held[1])
        covered = held_by_conformal(calibrated, predictive, test[1]).inside.mean()
        cost = np.median(times[label]) / len(test[1]) * 1e6
        ratio = np.median(times[label] / times["one network, alone"])
        cells = [*(values[score] for score in scores), distances[distance.split(" / ")[0]], total, knowledge, covered]
        row = (label, *(f"{value:.3f}" for value in cells), f"{cost:.1f}", f"{ratio:.1f}")
        result.add_row(*row)
        print(name, *row, sep=" | ", file=sys.stderr, flush=True)
    return result


def knowledge_of(predictive: Any) -> np.ndarray:
    """What more data could remove of the uncertainty: nats, or a standard deviation."""
    if predictive.confidence() is not None:
        return predictive.mutual_information()
    return predictive.knowledge.mean(axis=1)


def auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    """The probability that an input from elsewhere has more; 1/2 for ties."""
    ranks = np.searchsorted(np.sort(inside), outside), np.searchsorted(np.sort(inside), outside, side="right")
    return float(np.mean(ranks) / len(inside))
