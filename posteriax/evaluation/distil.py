"""Distillation: one network that predicts what a whole posterior predicts.

    minimise over f:  mean over inputs x of the distance from the teacher's predictive to that which f(x) describes

The inputs are those given, and others around them, so that the network also learns where the posterior is unsure: half
of these lie between and beyond pairs, x_i + a (x_j - x_i), and half are moved by noise, x_i + b s e, where s are the
standard deviations of the inputs. For classes it learns the Dirichlet with the teacher's mean and mutual information.
(Malinin, Mlodozeniec and Gales 2020 maximise the likelihood of every draw.)
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from posteriax import metrics
from posteriax import priors as p
from posteriax._internal.checks import as_key, check_count, check_data, check_inputs
from posteriax.evaluation.evaluate import evaluate
from posteriax.evaluation.robustness.conformal import conformal
from posteriax.likelihoods.distilled import (
    DirichletClasses,
    FromTeacher,
    FromTeacherOfClasses,
    FromTeacherOfNumbers,
    NormalParts,
    targets_of_classes,
    targets_of_numbers,
)
from posteriax.likelihoods.likelihood import Likelihood
from posteriax.likelihoods.numbers import InUnits, TargetUnits
from posteriax.likelihoods.predictive import Predictive
from posteriax.methods.map import MAP
from posteriax.networks.network import Network
from posteriax.networks.network import network as as_network
from posteriax.networks.widening import Widening, widening_for
from posteriax.posterior.distilled import DISTANCE, DistilledPosterior
from posteriax.posterior.posterior import Posterior, unfixed
from posteriax.posterior.trace import Trace
from posteriax.problem import Inputs, Key, Problem
from posteriax.run.fitting import fit

HELD_OUT = 0.1  # the share of the inputs on which distances are measured, if none are given
BEYOND = (-0.5, 1.5)  # where other inputs lie on the line through two of them
MOST_NOISE = 2.0  # standard deviations that others are moved by in each column or pixel
BATCH, FEWEST_STEPS, EPOCHS = 256, 3000, 20
PRIOR_SCALE = 10.0  # wide enough not to matter


def distil(
    posterior: Posterior,
    x: Inputs,
    *,
    net: Any = None,
    held_out: Any = None,
    shifted: Inputs | Mapping[str, Inputs] | None = None,
    level: float = 0.9,
    draws: int | None = None,
    others: float = 2.0,
    steps: int | None = None,
    batch_size: int = BATCH,
    key: Key = 0,
    progress: bool | None = None,
) -> DistilledPosterior:
    """One network that predicts what the whole posterior predicts, at the cost of one draw.

    Args:
        posterior: the teacher: of classes or of real numbers.
        x: inputs to learn from, without targets: those of the training set, and as many others as there are.
        net: the network, as :func:`px.network` takes it, with C outputs for C classes, or three for each number; by
            default the posterior's own, with more copies of its last layer if it needs more outputs.
        held_out: inputs, or a pair (inputs, targets), on which the distance to the teacher is measured; by default a
            tenth of `x`. Targets, unused in training, also give the conformal guarantee.
        shifted: other inputs on which it is measured: an array, or several by name.
        level: of the conformal intervals or sets.
        draws: of the teacher; by default as for `predict`.
        others: how many inputs around those of `x` to add, for each of them; none if they are whole numbers.
        steps: of training; by default 20 epochs, and at least 3,000.
        batch_size: of a step.
        key: an int or a JAX key.
        progress: whether to print the distances to standard error; by default if it is a terminal.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), test = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 16, 1, key=jax.random.key(0)), px.Categorical())
    >>> ensemble = px.fit(problem, (x, y), px.Ensemble(px.MAP(), members=5), steps=300, key=0)
    >>> student = px.distil(ensemble, x, held_out=test, steps=1000)
    >>> student.distances["held-out"]["total variation"] < 0.05, student.conformal.sets(student.predict(x[:3])).shape
    (True, (3, 2))
    """
    x, key = check_inputs(x), as_key(key)
    check_count("batch_size", batch_size)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    teacher = lambda inputs, reduce=True: posterior.predict(inputs, draws, reduce=reduce)  # noqa: E731
    sets = _sets(x, held_out, shifted, rng)
    learned = _with_others(sets.learned, others, rng)
    if posterior.predict(jax.tree.map(lambda a: a[:1], x), 1).whole_numbers:
        raise TypeError(
            f"distillation is for classes and real numbers, not for counts: {posterior.problem.likelihood!r}"
        )
    head = _head_for(teacher(learned))
    student, widening = _student(posterior, net, learned, head.outputs, key)
    problem = Problem(student, head.training, prior=p.Normal(scale=PRIOR_SCALE))
    examples = len(head.targets)
    total = steps or max(FEWEST_STEPS, EPOCHS * examples // batch_size)
    trained: Any = fit(
        problem,
        (learned, head.targets),
        MAP(),
        steps=total,
        batch_size=min(batch_size, examples),
        key=key,
        progress=progress,
    )
    finished = DistilledPosterior(
        replace(trained.problem, likelihood=head.likelihood), trained.trace, trained.draws, widening
    )
    arrays = {"log_joint": np.asarray(trained.trace["log_joint"])}
    for name, inputs in sets.measured.items():
        targets = sets.targets if name == "held-out" else None
        for measure, value in distances(finished.predict(inputs), teacher(inputs, False), targets).items():
            arrays[f"{DISTANCE}/{name}/{measure}"] = np.array([value])
    if sets.targets is not None and len(sets.targets) >= math.ceil(level / (1 - level) - 1e-9):
        calibrated = conformal(finished.predict(sets.measured["held-out"]), sets.targets, level)
        parts = (calibrated.level, calibrated.threshold, calibrated.examples, calibrated.classes)
        arrays["conformal"] = np.array(parts, np.float64)
    finished = replace(finished, trace=Trace(arrays, trained.trace.notes, trained.trace.seconds))
    if sys.stderr.isatty() if progress is None else progress:
        print(finished.report(), file=sys.stderr)
    return finished


def distances(student: Predictive, teacher: Predictive, y: np.ndarray | None = None) -> dict[str, float]:
    """How far a distilled network's predictions are from its teacher's.

    Classes: total variation and agreement, the mean differences of entropy and of knowledge in nats; with targets, ECE
    of both. Numbers: the mean 1-Wasserstein distance, and that of means, in the teacher's standard deviations, and the
    mean ratio of noise and of knowledge; with targets, the coverage of both.

    >>> import posteriax as px
    >>> sure, unsure = (px.likelihoods.ClassPredictive(px.Categorical(), np.log([[[a, 1 - a]]])) for a in (0.9, 0.6))
    >>> round(distances(sure, unsure)["total variation"], 3)
    0.3
    """
    if teacher.confidence() is not None:
        found = {
            "total variation": float(np.mean(metrics.total_variation(student.mean, teacher.mean))),
            "agreement": float(np.mean(student.point() == teacher.point())),
            "entropy": float(np.abs(student.entropy() - teacher.entropy()).mean()),
            "knowledge": float(np.abs(student.mutual_information() - teacher.mutual_information()).mean()),
        }
        score = "ece"
    else:
        ours, theirs = (_parts(predictive) for predictive in (student, teacher))
        found = {
            "Wasserstein": float((teacher.distance(student) / teacher.std).mean()),  # type: ignore[attr-defined]
            "mean": float((np.abs(ours[0] - theirs[0]) / teacher.std).mean()),
            "noise ratio": _mean_ratio(ours[1], theirs[1]),
            "knowledge ratio": _mean_ratio(ours[2], theirs[2]),
        }
        score = "coverage_90"
    if y is not None:
        name = {"ece": "ECE", "coverage_90": "coverage of 90 %"}[score]
        found |= {name: float(evaluate(student, y, scores=[score])[score])}
        found |= {f"{name} of the teacher": float(evaluate(teacher, y, scores=[score])[score])}
    return found


def _parts(predictive: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return predictive.mean, predictive.noise, predictive.knowledge


def _mean_ratio(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The geometric mean of ratios."""
    return float(np.exp(np.mean(np.log(np.maximum(ours, 1e-30)) - np.log(np.maximum(theirs, 1e-30)))))


class _Sets(NamedTuple):
    learned: Inputs
    measured: dict[str, Inputs]
    targets: np.ndarray | None  # of the held-out inputs


def _sets(x: Inputs, held_out: Any, shifted: Any, rng: np.random.Generator) -> _Sets:
    n, targets = jax.tree.leaves(x)[0].shape[0], None
    if held_out is None:
        order = rng.permutation(n)
        held = order[: max(1, round(HELD_OUT * n))]
        learned = jax.tree.map(lambda a: a[order[len(held) :]], x)
        held_out = jax.tree.map(lambda a: a[held], x)
    else:
        learned = x
        if isinstance(held_out, tuple | list) and len(held_out) == 2 and not isinstance(x, tuple | list):
            held_out, targets = check_data(held_out)
    measured = {"held-out": check_inputs(held_out)}
    if shifted is not None:
        given = shifted if isinstance(shifted, Mapping) and not isinstance(x, Mapping) else {"shifted": shifted}
        measured |= {name: check_inputs(inputs) for name, inputs in given.items()}
    return _Sets(learned, measured, targets)


def _with_others(x: Inputs, others: float, rng: np.random.Generator) -> Inputs:
    """The inputs, those on lines through pairs of them, and those moved by noise; whole numbers stay as they are."""
    leaves = jax.tree.leaves(x)
    n = leaves[0].shape[0]
    count = round(others * n / 2)
    if count == 0 or n < 2 or any(leaf.dtype.kind != "f" for leaf in leaves):
        return x
    first, second, third = rng.integers(n, size=(3, count))
    share, noise = rng.uniform(*BEYOND, size=count), rng.uniform(0, MOST_NOISE, size=count)

    def added(leaf: np.ndarray) -> np.ndarray:
        a, b = (factors.reshape(-1, *[1] * (leaf.ndim - 1)).astype(leaf.dtype) for factors in (share, noise))
        between = leaf[first] + a * (leaf[second] - leaf[first])
        e = rng.normal(size=between.shape).astype(leaf.dtype)
        return np.concatenate([leaf, between, leaf[third] + b * leaf.std(axis=0) * e])

    return jax.tree.map(added, x)


class _Head(NamedTuple):
    outputs: int
    training: FromTeacher
    likelihood: Likelihood
    targets: np.ndarray


def _head_for(teacher: Any) -> _Head:
    """What the student's outputs are, and what they are trained on, from the teacher's predictions."""
    if teacher.confidence() is not None:
        if teacher.mean.ndim != 2:
            raise TypeError("distillation is for one label per example, not for sequences of labels")
        targets = targets_of_classes(teacher.probs, teacher.mutual_information())
        return _Head(targets.shape[1] - 1, FromTeacherOfClasses(), DirichletClasses(), targets)
    known, sums = teacher.likelihood.units, teacher.sums
    noise = known.restore_spread(np.sqrt(np.asarray(sums.variance, np.float64)))
    knowledge = known.restore_spread(np.sqrt(np.asarray(sums.squares, np.float64) / np.asarray(sums.count)))
    mean = np.asarray(teacher.mean, np.float64)
    units = TargetUnits(float(mean.mean()), float(np.sqrt(mean.var() + np.square(teacher.std).mean())))
    targets = targets_of_numbers((mean - units.offset) / units.scale, noise / units.scale, knowledge / units.scale)
    likelihood = InUnits(NormalParts(), units.offset, units.scale)
    return _Head(targets.shape[1], FromTeacherOfNumbers(), likelihood, targets)


def _one_draw(posterior: Posterior, key: jax.Array) -> Any:
    """Where the student begins: a draw is a good network, which the mean of several modes is not."""
    try:
        return jax.tree.map(lambda leaf: jax.numpy.asarray(leaf[0]), posterior.sample(key, 1))
    except TypeError:  # random factors, which are not params
        return posterior.mean


def _student(
    posterior: Posterior, net: Any, x: Inputs, outputs: int, key: jax.Array
) -> tuple[Network, Widening | None]:
    """A network with so many outputs: the given one, or the posterior's own from the weights of one draw."""
    if net is not None:
        given = as_network(net)
        spec = jax.eval_shape(given.apply, given.params, jax.tree.map(lambda a: a[:2], x))
        if spec.shape[1:] != (outputs,):
            raise ValueError(f"net has outputs of shape {spec.shape[1:]} per example, but a student needs ({outputs},)")
        return given, None
    net = unfixed(posterior.problem.network)
    net = replace(net, params=_one_draw(posterior, key), axes=None)
    widening = widening_for(net, x, outputs)
    return (net if widening is None else widening.apply_to(net)), widening
