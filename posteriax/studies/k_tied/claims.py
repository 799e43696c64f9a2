"""What the paper claims about the k-tied Normal, as numbers with bounds.

Ratios compare two cells of the same seed, or two rows of the same cell.
"""

from collections.abc import Callable, Sequence

from posteriax.studies.k_tied.networks import HE, LENET, LSTM, MEAN_FIELD, MLP, PRIOR_SCALE, TIED
from posteriax.studies.k_tied.remarks import BEHIND_ITS_OPTIMUM, DEAD_UNITS, LSTM_LONGER, MEANS_OF_LAYER_2
from posteriax.studies.results import Results, look_up
from posteriax.studies.study import Claim

Measure = Callable[[Results], Sequence[float]]
FULL = "scores"  # the posterior as trained
NAMES = {"nll": "NLL", "negative_elbo": "-ELBO"}


def values(path: str, network: str, family: str = MEAN_FIELD) -> Measure:
    """An entry of the results of a network and family, by seed."""
    return lambda results: results.values(path, network=network, family=family).tolist()


def truncation_ratio(score: str, k: int, network: str) -> Measure:
    """A score after truncation to rank k, divided by the one before."""

    def measure(results: Results) -> Sequence[float]:
        after = results.values(f"truncation.{k}.{score}", network=network, family=MEAN_FIELD)
        before = results.values(f"{FULL}.{score}", network=network, family=MEAN_FIELD)
        return (after / before).tolist()

    return measure


def paired(results: Results, path: str, one: tuple[str, str], other: tuple[str, str]) -> list[tuple[float, float]]:
    """An entry in two cells, (network, family) each, for every seed that both have.

    >>> from posteriax.studies.results import CellResult
    >>> seeds = (("a", 0), ("a", 1), ("b", 1))
    >>> cells = [CellResult({"network": "MLP", "family": f}, s, {"nll": s + 1}) for f, s in seeds]
    >>> paired(Results("k-tied", "smoke", 2, {}, cells, {}, {}, True), "nll", ("MLP", "a"), ("MLP", "b"))
    [(2, 2)]
    """
    found = [
        {cell.seed: look_up(cell.result, path) for cell in results.of(network=network, family=family)}
        for network, family in (one, other)
    ]
    return [(found[0][seed], found[1][seed]) for seed in found[0] if seed in found[1]]


def against_mean_field(path: str, network: str, family: str) -> Measure:
    """An entry divided by that of mean-field."""

    def measure(results: Results) -> Sequence[float]:
        return [own / other for own, other in paired(results, path, (network, family), (network, MEAN_FIELD))]

    return measure


def explained(network: str, part: str, count: int, worst: Callable[[list[float]], float]) -> Measure:
    """The share of the squares in the first `count` singular values: the smallest or largest over the matrices."""

    def measure(results: Results) -> Sequence[float]:
        return [
            worst([sum(one[part][:count]) for one in cell.result["spectra"].values()])
            for cell in results.of(network=network, family=MEAN_FIELD)
        ]

    return measure


def at_step(entry: str, place: int) -> Callable[[Results, str], dict[int, float]]:
    """An entry of the first steps by seed, at the first (1) or last (-1) window after the start."""
    return lambda results, family: {
        cell.seed: cell.result["first_steps"][entry][place] for cell in results.of(network=MLP, family=family)
    }


def _of_tied(entry: str, place: int, results: Results) -> list[dict[int, float]]:
    found = [at_step(entry, place)(results, family) for family in TIED]
    return [by_seed for by_seed in found if by_seed] or [{}]


def signal_ratio(place: int, entry: str = "signal") -> Measure:
    """The signal-to-noise ratio of tied scales divided by that of mean-field: the smallest over k."""

    def measure(results: Results) -> Sequence[float]:
        untied = at_step(entry, place)(results, MEAN_FIELD)
        tied = _of_tied(entry, place, results)
        seeds = [seed for seed in untied if all(seed in found for found in tied)]
        return [min(found[seed] for found in tied) / untied[seed] for seed in seeds]

    return measure


def signal_converges(results: Results) -> Sequence[float]:
    """The last signal ratio divided by the first."""
    return [late / early for early, late in zip(signal_ratio(1)(results), signal_ratio(-1)(results), strict=True)]


def late_elbo_ratio(results: Results) -> Sequence[float]:
    """-ELBO of mean-field divided by the largest one among the tied families, at the last window."""
    untied = at_step("negative_elbo", -1)(results, MEAN_FIELD)
    tied = _of_tied("negative_elbo", -1, results)
    seeds = [seed for seed in untied if all(seed in found for found in tied)]
    return [untied[seed] / max(found[seed] for found in tied) for seed in seeds]


def prior_ratio(results: Results) -> Sequence[float]:
    """The NLL under the He-scaled prior divided by that under the scalar one."""
    return [he / own for he, own in paired(results, "scores.nll", (HE, MEAN_FIELD), (MLP, MEAN_FIELD))]


def _relative_scale(network: str) -> Measure:
    return lambda results: [one / PRIOR_SCALE for one in values("mean_scale", network)(results)]


def _spectra(network: str, place: str) -> tuple[Claim, ...]:
    return (
        Claim(
            f"{network}: rank of scales",
            f"Two singular values hold nearly all of the trained standard deviations ({network}, {place}).",
            "nearly all (figure 3)",
            "share of squares in the first two singular values, smallest of the matrices",
            explained(network, "scales", 2, min),
            above=0.9,
        ),
        Claim(
            f"{network}: rank of means",
            f"The means have no such structure ({network}, {place}).",
            "many are needed (figure 3)",
            "share of squares in the first two singular values of the means, largest of the matrices",
            explained(network, "means", 2, max),
            below=0.5,
            remark={MLP: MEANS_OF_LAYER_2}.get(network, ""),
        ),
    )


def _truncation(network: str, k: int, sentence: str, paper: str, above: float, below: float, score: str) -> Claim:
    name = NAMES[score]
    return Claim(
        f"{network}: truncation to rank {k}, {name}",
        sentence,
        paper,
        f"{name} at rank {k} divided by {name} as trained",
        truncation_ratio(score, k, network),
        above,
        below,
    )


def _trained(network: str, family: str, paper: str, below: float, score: str = "nll", remark: str = "") -> Claim:
    name = NAMES[score]
    return Claim(
        f"{network}: trained {family}, {name}",
        f"Trained with {family} scales, the {network} has as good an {name} as mean-field.",
        paper,
        f"{name} of {family} divided by that of mean-field",
        against_mean_field(f"scores.{score}", network, family),
        below=below,
        remark=remark,
    )


INF = float("inf")
CLAIMS: tuple[Claim, ...] = (
    Claim(
        "MLP: accuracy",
        "Mean-field reaches the paper's accuracy on MNIST.",
        "97.6 % when converged (table 2), 96.8 % after 300 epochs (figure 6)",
        "test accuracy in per cent: within half a point of these",
        values("scores.accuracy", MLP),
        above=96.3,
        below=98.1,
    ),
    # spectra
    Claim(
        "MLP: first singular value",
        "One singular value holds most of the trained standard deviations (MLP).",
        "most (figure 3)",
        "share of squares in the first singular value, smallest of the three matrices",
        explained(MLP, "scales", 1, min),
        above=0.5,
    ),
    *_spectra(MLP, "three dense layers"),
    *_spectra(LENET, "two dense layers"),
    *_spectra(LSTM, "two matrices"),
    Claim(
        "MLP: scales against the prior",
        "Trained standard deviations stay above half of the prior's (MLP).",
        "above 50 % (appendix C)",
        "mean standard deviation of the weights divided by that of the prior",
        _relative_scale(MLP),
        above=0.5,
    ),
    # truncation after training
    _truncation(MLP, 1, "Truncation to rank 1 clearly hurts the MLP.", "0.677 / 0.100 = 6.8", 1.2, INF, "nll"),
    _truncation(MLP, 1, "... and its ELBO.", "3.41 / 0.431 = 7.9", 1.2, INF, "negative_elbo"),
    _truncation(MLP, 2, "Truncation to rank 2 does not hurt the MLP.", "0.107 / 0.100 = 1.07", 0.9, 1.1, "nll"),
    _truncation(MLP, 3, "Truncation to rank 3 does not hurt the MLP.", "0.106 / 0.100 = 1.06", 0.9, 1.1, "nll"),
    _truncation(LENET, 2, "Truncation to rank 2 does not hurt the LeNet.", "2.24 / 2.23 = 1.00", 0.95, 1.05, "nll"),
    _truncation(LSTM, 2, "Truncation to rank 2 does not hurt the LSTM.", "0.494 / 0.493 = 1.00", 0.95, 1.05, "nll"),
    # training with tied scales
    _trained(MLP, "2-tied", "0.129 / 0.133 = 0.97", 1.1, remark=BEHIND_ITS_OPTIMUM),
    _trained(MLP, "3-tied", "0.120 / 0.133 = 0.90", 1.1),
    _trained(MLP, "2-tied", "0.520 / 0.501 = 1.04", 1.1, "negative_elbo"),
    _trained(MLP, "3-tied", "0.497 / 0.501 = 0.99", 1.1, "negative_elbo"),
    Claim(
        "MLP: trained 1-tied, -ELBO",
        "One factor is not enough: the ELBO of the 1-tied MLP is worse than that of mean-field.",
        "0.539 / 0.501 = 1.08",
        "-ELBO of 1-tied divided by that of mean-field",
        against_mean_field("scores.negative_elbo", MLP, "1-tied"),
        above=1.0,
    ),
    Claim(
        "MLP: parameters",
        "2-tied needs half of the parameters (MLP).",
        "484 k / 957 k = 0.51",
        "parameters of 2-tied divided by those of mean-field",
        against_mean_field("parameters", MLP, "2-tied"),
        below=0.52,
    ),
    _trained(LENET, "2-tied", "2.15 / 2.16 = 1.00", 1.05),
    _trained(LSTM, "2-tied", "0.484 / 0.478 = 1.01", 1.05, remark=LSTM_LONGER),
    # the first steps
    Claim(
        "MLP: signal early",
        "Gradients of tied scales have far more signal early in training.",
        "5840, 7500 and 7000 against 4.13 at step 1000: 1400 times and more",
        "sum of E[g^2] / sum of Var[g], layer 2's scales, first reading: smallest of k = 1, 2, 3 divided by mean-field",
        signal_ratio(1),
        above=2.0,
    ),
    Claim(
        "MLP: signal early, averaged ratios",
        "The same by the paper's own average of E[g^2] / Var[g] over parameters.",
        "1400 times and more",
        "average ratio of layer 2's scales at the first reading: smallest of k = 1, 2, 3 divided by mean-field",
        signal_ratio(1, "mean_ratio"),
        above=2.0,
        remark=DEAD_UNITS,
    ),
    Claim(
        "MLP: signal late",
        "The advantage in signal fades as training converges.",
        "from 1400 times at step 1000 to 1.3 times at step 9000",
        "the same ratio at the last reading, divided by that at the first",
        signal_converges,
        below=0.5,
    ),
    Claim(
        "MLP: speed",
        "Tied scales converge faster.",
        "15.39 / 2.06 = 7.5 at step 9000",
        "-ELBO of mean-field at the last reading divided by the largest of k = 1, 2, 3",
        late_elbo_ratio,
        above=2.0,
    ),
    # the He-scaled prior
    *_spectra(HE, "three dense layers")[:1],
    _truncation(
        HE,
        1,
        "Truncation to rank 1 hurts under the He-scaled prior too.",
        "1.485 / 0.638 = 2.3, ResNet-18",
        1.2,
        INF,
        "nll",
    ),
    _truncation(
        HE,
        2,
        "Truncation to rank 2 does not, under the He-scaled prior.",
        "0.648 / 0.638 = 1.02, ResNet-18",
        0.9,
        1.1,
        "nll",
    ),
    Claim(
        "MLP: worse with He prior",
        "The He-scaled prior predicts worse than the scalar one.",
        "0.638 / 0.495 = 1.29, ResNet-18",
        "NLL under the He-scaled prior divided by that under the scalar one",
        prior_ratio,
        above=1.0,
    ),
)
