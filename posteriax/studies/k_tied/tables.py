"""The tables of the page, with the paper's figures beside."""

from collections.abc import Sequence

import numpy as np

from posteriax.metrics.estimate import Estimate, format_estimate
from posteriax.studies.k_tied.networks import HE, LENET, LSTM, MEAN_FIELD, MLP, RANKS, TIED
from posteriax.studies.results import Results
from posteriax.studies.study import Table

SCORES = ("negative_elbo", "nll", "accuracy")
# -ELBO, NLL and accuracy in per cent; table 2, and figure 9 for the He-scaled prior (of a ResNet-18 on CIFAR-10)
TRUNCATED = {
    MLP: ("0.431, 0.100, 97.6", "3.41, 0.677, 93.6", "0.456, 0.107, 97.6", "0.450, 0.106, 97.6"),
    LENET: ("3.83, 2.23, 42.1", "4.33, 2.30, 41.7", "3.88, 2.24, 42.2", "3.86, 2.24, 42.1"),
    LSTM: ("0.536, 0.493, 80.1", "0.687, 0.491, 80.0", "0.621, 0.494, 80.1", "0.595, 0.493, 80.1"),
    HE: ("1.379, 0.638, 79.0", "5.428, 1.485, 57.0", "1.448, 0.648, 78.8", "1.411, 0.646, 78.9"),
}
# the same and thousands of parameters; figure 6
TRAINED = {
    MLP: ("0.501, 0.133, 96.8, 957", "0.539, 0.155, 96.1, 482", "0.520, 0.129, 96.8, 484", "0.497, 0.120, 96.9, 486"),
    LENET: ("3.72, 2.16, 43.9, 4405", "3.65, 2.12, 45.5, 2262", "3.76, 2.15, 44.3, 2268", "3.73, 2.13, 44.3, 2273"),
    LSTM: (
        "0.538, 0.478, 79.5, 2823",
        "0.592, 0.512, 77.6, 2693",
        "0.560, 0.484, 78.2, 2694",
        "0.550, 0.491, 78.8, 2695",
    ),
}
# signal-to-noise ratio and -ELBO at steps 1000, 5000 and 9000; figure 6
FIRST_STEPS = {
    MEAN_FIELD: ("4.13, 4.45, 3.21", "42.16, 26.52, 15.39"),
    "1-tied": ("5840, 158, 5.3", "43.11, 14.85, 2.06"),
    "2-tied": ("7500, 140, 4.3", "42.74, 13.97, 1.82"),
    "3-tied": ("7000, 117, 4.1", "42.63, 13.61, 1.80"),
}
STEP_TIMES = {"point estimate": "2.00", MEAN_FIELD: "7.17", "2-tied": "6.14"}  # milliseconds; table 4


def make_tables(results: Results) -> list[Table]:
    return [
        spectra_table(results),
        truncation_table(results),
        training_table(results),
        first_steps_table(results),
        step_times_table(results),
    ]


def show(values: Sequence[float] | np.ndarray) -> str:
    """The mean over seeds and its standard error; dashes if there are none.

    >>> show([0.1, 0.2]), show([])
    ('0.15 ± 0.05', '-')
    """
    return format_estimate(Estimate.from_mean(list(values), "seeds")) if len(values) else "-"


def spectra_table(results: Results) -> Table:
    rows = []
    for network in (MLP, LENET, LSTM, HE):
        found = [cell.result["spectra"] for cell in results.of(network=network, family=MEAN_FIELD)]
        for leaf in found[0]:
            shares = (("scales", 1), ("scales", 2), ("means", 1), ("means", 2))
            shown = [show([sum(one[leaf][part][:count]) for one in found]) for part, count in shares]
            size = " x ".join(map(str, found[0][leaf]["shape"]))
            rows.append((network, leaf, size, *shown, show([one[leaf]["mean_scale"] for one in found])))
    headings = ("network", "matrix", "size", "scales, 1", "scales, 2", "means, 1", "means, 2", "mean scale")
    caption = (
        "Share of squares that the first one and two singular values hold, of trained standard deviations (scales) and "
        "of means, and the mean standard deviation."
    )
    return Table(caption, headings, rows)


def truncation_table(results: Results) -> Table:
    rows = []
    for network in (MLP, LENET, LSTM, HE):
        for paper, k in zip(TRUNCATED[network], (0, *RANKS), strict=True):
            part = f"truncation.{k}" if k else "scores"
            shown = [show(results.values(f"{part}.{name}", network=network, family=MEAN_FIELD)) for name in SCORES]
            rows.append((network, f"rank {k}" if k else "as trained", *shown, paper))
    caption = (
        "Truncation of trained standard deviations. -ELBO and NLL in nats per test example, accuracy in per cent; the "
        f"paper's figures in the same order. For the {HE} they are those of a ResNet-18 on CIFAR-10."
    )
    return Table(caption, ("network", "scales", "-ELBO", "NLL", "accuracy", "the paper"), rows)


def training_table(results: Results) -> Table:
    rows = []
    for network in (MLP, LENET, LSTM):
        for paper, family in zip(TRAINED[network], (MEAN_FIELD, *TIED), strict=True):
            found = results.of(network=network, family=family)
            if not found:
                continue
            shown = [show(results.values(f"scores.{name}", network=network, family=family)) for name in SCORES]
            settled = show(results.values("settling", network=network, family=family))
            rows.append((network, family, *shown, f"{found[0].result['parameters']:,}", settled, paper))
    caption = (
        "Training with tied scales; parameters are those of the posterior. The last fall is how much the training "
        "-ELBO still fell between the last two tenths of the run. The paper: -ELBO, NLL, accuracy, thousands of "
        "parameters."
    )
    headings = ("network", "family", "-ELBO", "NLL", "accuracy", "parameters", "last fall", "the paper")
    return Table(caption, headings, rows)


def first_steps_table(results: Results) -> Table:
    rows = []
    steps = results.of(network=MLP, family=MEAN_FIELD)[0].result["first_steps"]["step"]
    places = sorted({1, (len(steps) + 1) // 2, len(steps) - 1})
    for family, (signal, elbo) in FIRST_STEPS.items():
        found = [cell.result["first_steps"] for cell in results.of(network=MLP, family=family)]
        shown = [
            show([one[entry][place] for one in found])
            for entry in ("signal", "mean_ratio", "negative_elbo")
            for place in places
        ]
        rows.append((family, *shown, signal, elbo))
    at = [f"{name}, step {steps[place]}" for name in ("SNR", "averaged ratio", "-ELBO") for place in places]
    caption = (
        "The first steps of the MLP with Adam: signal-to-noise ratio of the gradients of the second layer's scales, "
        "sum of E[g^2] / sum of Var[g] over ten batches (1 is noise); the average over parameters of E[g^2] / "
        "Var[g], which is the "
        "paper's; and -ELBO in nats per training example. The "
        "paper's figures are those at steps 1000, 5000 and 9000; the learning rate here is "
        f"{results.settings['first_rate']:g}."
    )
    return Table(caption, ("family", *at, "SNR, the paper", "-ELBO, the paper"), rows)


def step_times_table(results: Results) -> Table:
    rows = []
    for family in ("point estimate", MEAN_FIELD, *TIED):
        names = [f"{MLP}, {family}, seed {cell.seed}" for cell in results.of(network=MLP, family=family)]
        times = [results.times.get(name, {}).get("seconds_per_step") for name in names]
        rows.append((family, show([1000 * time for time in times if time]), STEP_TIMES.get(family, "-")))
    caption = "Milliseconds per step of the MLP in the first steps. The paper's are of a smaller network on a GPU."
    return Table(caption, ("family", "here", "the paper"), rows)
