"""What the paper claims, with the bounds that decide, fixed before the run."""

from collections.abc import Callable, Sequence

import numpy as np

from posteriax.studies.results import CellResult, Results
from posteriax.studies.study import Claim
from posteriax.studies.variance_networks.remarks import ATTACKS, SINGLE_DRAWS, SPARSE, TRANSITION_REMARK

Measure = Callable[[Results], Sequence[float]]
AT_CHANCE = 3.0  # standard errors
SAME = 0.005  # accuracies closer than half a per cent count as the same
SMALL = 0.01
REMOVED = 0.98  # share of the weights of the variance layer


def accuracy_of(method: str, name: str) -> Measure:
    """A number of LeNet-5 with this layer, trained on all data."""
    return lambda results: results.values(name, experiment="accuracy", network="LeNet-5", method=method).tolist()


def parameterisation_of(method: str, name: str) -> Measure:
    """A number of LeNet-5 with this layer, trained on the subset."""
    return lambda results: results.values(name, experiment="parameterisation", method=method).tolist()


def minus(a: Measure, b: Measure) -> Measure:
    """Differences by seed."""
    return lambda results: [x - y for x, y in zip(a(results), b(results), strict=False)]


def each(experiment: str, measure: Callable[[CellResult], float], **settings: str) -> Measure:
    """A number computed from every cell of an experiment."""
    return lambda results: [measure(cell) for cell in results.of(experiment=experiment, **settings)]


def _fall_of_means(cell: CellResult) -> float:
    curve = np.asarray(cell.result["curve"]["deterministic"], float)
    return float(curve.max() - cell.result["deterministic"])


def _change_of_ensemble(cell: CellResult) -> float:
    """From where the mean weights are best to the end of the run, on the watched examples."""
    curve = cell.result["curve"]
    best = int(np.argmax(np.asarray(curve["deterministic"], float)))
    return float(curve["ensemble"][-1] - curve["ensemble"][best])


def _emergence(cell: CellResult) -> float:
    """log10 of the share of weights above the threshold: at the end, less at the first measurement."""
    above = np.maximum(np.asarray(cell.result["curve"]["above"], float), 1e-6)
    return float(np.log10(above[-1] / above[0]))


def _sparse_loss(rest: str) -> Callable[[CellResult], float]:
    def loss(cell: CellResult) -> float:
        return float(cell.result["ensemble"] - cell.result[rest][list(cell.result["removed"]).index(REMOVED)])

    return loss


def _mean_success(name: str) -> Callable[[CellResult], float]:
    return lambda cell: float(np.mean(cell.result[name]["success"][1:]))


def _rise_of_entropy(name: str) -> Callable[[CellResult], float]:
    return lambda cell: float(np.mean(cell.result[name]["entropy"][1:]) - cell.result[name]["entropy"][0])


TABLE = (
    Claim(
        "variance LeNet-5 classifies",
        "A LeNet-5 whose first dense layer has weights with mean 0, trained from scratch, classifies MNIST.",
        "ensemble accuracy 99.2 % (from scratch), 99.3 % (by variational dropout)",
        "accuracy of the ensemble, zero-mean layer",
        accuracy_of("zero-mean", "ensemble"),
        above=0.99,
    ),
    Claim(
        "the means know nothing",
        "With its weights replaced by their means the same network guesses.",
        "deterministic accuracy 10.1 %",
        "deterministic accuracy above chance, in standard errors",
        accuracy_of("zero-mean", "above_chance"),
        above=-AT_CHANCE,
        below=AT_CHANCE,
    ),
    Claim(
        "as accurate as dropout",
        "A variance network is as accurate as a network with binary dropout.",
        "99.3 % and 99.4 %",
        "ensemble accuracy, zero-mean layer less dropout",
        minus(accuracy_of("zero-mean", "ensemble"), accuracy_of("dropout", "ensemble")),
        above=-SAME,
        below=SAME,
    ),
    Claim(
        "dropout's means suffice",
        "Dropout is a low-variance ensemble: its mean weights predict as well as the ensemble.",
        "99.4 % and 99.4 %",
        "dropout: ensemble less deterministic accuracy",
        minus(accuracy_of("dropout", "ensemble"), accuracy_of("dropout", "deterministic")),
        above=-SAME,
        below=SAME,
    ),
    Claim(
        "single draws are worse",
        "A variance network needs the average: single draws are much worse than the ensemble.",
        "99.3 % and 95.9 %: 3.4 %",
        "zero-mean layer: ensemble less stochastic accuracy",
        minus(accuracy_of("zero-mean", "ensemble"), accuracy_of("zero-mean", "stochastic")),
        above=SMALL,
        remark=SINGLE_DRAWS,
    ),
    Claim(
        "information in variances",
        "All that a variance layer has learned is in the variances of single weights: shuffling them destroys it.",
        "not reported; the authors' program has the option",
        "zero-mean layer: ensemble accuracy less that with shuffled variances",
        minus(accuracy_of("zero-mean", "kept"), accuracy_of("zero-mean", "shuffled")),
        above=0.3,
    ),
)

TRANSITION = (
    Claim(
        "phase transition",
        "With one alpha per layer and a log-uniform prior, log alpha grows until the mean weights lose their accuracy.",
        "deterministic accuracy falls from that of the ensemble to 11.3 % (LeNet-5), 10.0 % (VGG on CIFAR-10)",
        "deterministic accuracy: the largest along the run less the last",
        each("parameterisation", _fall_of_means, method="layer"),
        above=0.5,
        remark=TRANSITION_REMARK,
    ),
    Claim(
        "the ensemble does not notice",
        "The accuracy of the ensemble does not fall when that of the means does.",
        "99.2 % after the transition",
        "ensemble accuracy at the end less that where the means are best",
        each("parameterisation", _change_of_ensemble, method="layer"),
        above=-SMALL,
    ),
    Claim(
        "means can be dropped",
        "After the transition the means can be set to 0 with no loss of accuracy.",
        "no degradation",
        "ensemble accuracy without means less that with them, one alpha per layer",
        minus(parameterisation_of("layer", "without_means"), parameterisation_of("layer", "kept")),
        above=-SMALL,
    ),
    Claim(
        "a proper prior does the same",
        "A Student-t prior with 1e-16 degrees of freedom leads to the same results as the log-uniform prior.",
        "ensemble 99.2 %, deterministic at chance",
        "ensemble accuracy, Student-t less log-uniform prior",
        minus(parameterisation_of("student-t", "ensemble"), parameterisation_of("layer", "ensemble")),
        above=-SMALL,
        below=SMALL,
    ),
)

PARAMETERISATIONS = (
    Claim(
        "layer beats weight",
        "The least flexible parameterisation has the highest ELBO: one alpha per layer against one per weight.",
        "-5.9e2 and -6.4e4 nats",
        "ELBO, layer less weight, in nats",
        minus(parameterisation_of("layer", "elbo"), parameterisation_of("weight", "elbo")),
        above=0.0,
    ),
    Claim(
        "layer beats additive",
        "The same against a free variance for every weight.",
        "-5.9e2 and -2.3e4 nats",
        "ELBO, layer less additive, in nats",
        minus(parameterisation_of("layer", "elbo"), parameterisation_of("additive", "elbo")),
        above=0.0,
    ),
    Claim(
        "flexible layers keep their means",
        "With one alpha per weight, or additive noise, there is no clear transition: the means stay accurate.",
        "deterministic accuracy 81.3 % (weight), 96.3 % (additive)",
        "deterministic accuracy, additive",
        parameterisation_of("additive", "deterministic"),
        above=0.5,
    ),
    Claim(
        "same accuracy",
        "The accuracy of the ensemble is the same in all parameterisations.",
        "99.2 % in all four",
        "ensemble accuracy, layer less the mean of the other three",
        minus(
            parameterisation_of("layer", "ensemble"),
            lambda results: np.mean(
                [parameterisation_of(other, "ensemble")(results) for other in ("neuron", "weight", "additive")], axis=0
            ).tolist(),
        ),
        above=-SMALL,
        below=SMALL,
    ),
)

OTHERS = (
    Claim(
        "large kappas emerge",
        "The transition comes with weights whose kappa is above 10^1.5; before it there are few.",
        "the histogram of kappa moves up as the deterministic accuracy falls",
        "log10 of the share of weights above the threshold, at the end less at the start",
        each("curvature", _emergence),
        above=0.0,
    ),
    Claim(
        "sparse ensembles",
        "98 % of the weights of the variance layer, those with the smallest kappa, can be set to 0 without loss.",
        "no loss of accuracy at 98 %",
        "ensemble accuracy of the whole layer less that with 98 % of its weights set to 0",
        each("curvature", _sparse_loss("zero")),
        below=SMALL,
        remark=SPARSE,
    ),
    Claim(
        "attacks succeed less often",
        "Targeted attacks succeed less often on a variance network than on a dropout ensemble.",
        "a figure: lower at every iteration",
        "success rate averaged over iterations, dropout less variance",
        each("attack", lambda cell: _mean_success("dropout")(cell) - _mean_success("variance")(cell)),
        above=0.0,
        remark=ATTACKS,
    ),
    Claim(
        "ensembles of variance networks",
        "A deep ensemble of variance networks is attacked less successfully than a deep ensemble.",
        "a figure: the lowest rates of all",
        "success rate averaged over iterations, deep ensemble less variance ensemble",
        each("attack", lambda cell: _mean_success("deep ensemble")(cell) - _mean_success("variance ensemble")(cell)),
        above=0.0,
    ),
    Claim(
        "attacks raise the entropy",
        "Variance networks are less certain of attacked images than of clean ones.",
        "a figure: only variance networks and their ensembles",
        "mean predictive entropy, attacked less clean, variance network, in nats",
        each("attack", _rise_of_entropy("variance")),
        above=0.0,
    ),
    Claim(
        "a more uncertain ensemble",
        "Under attack a variance network has a higher entropy than a dropout ensemble.",
        "a figure: higher at every iteration",
        "mean predictive entropy over iterations, variance less dropout, in nats",
        each(
            "attack",
            lambda cell: float(np.mean(np.subtract(*(cell.result[n]["entropy"][1:] for n in ("variance", "dropout"))))),
        ),
        above=0.0,
    ),
    Claim(
        "two noisy units separate four classes",
        "Two units whose mean is 0 for every input are enough to tell four classes apart.",
        "a figure of the published version",
        "ensemble accuracy on the toy problem",
        lambda results: results.values("ensemble", experiment="toy").tolist(),
        above=0.9,
    ),
)

CLAIMS = (*TABLE, *TRANSITION, *PARAMETERISATIONS, *OTHERS)
