"""The tables of the study, beside the paper's."""

from collections.abc import Sequence

import numpy as np

from posteriax.studies.results import Results
from posteriax.studies.study import Table

# stochastic, deterministic, ensemble accuracy in per cent
PAPER_ACCURACIES: dict[tuple[str, ...], tuple[float | None, ...]] = {
    ("LeNet-5", "mnist", "dropout"): (99.1, 99.4, 99.4),
    ("LeNet-5", "mnist", "layer"): (95.9, 10.1, 99.3),
    ("LeNet-5", "mnist", "zero-mean"): (None, None, 99.2),
    ("VGG", "cifar10", "dropout"): (91.0, 93.1, 93.4),
    ("VGG", "cifar10", "layer"): (91.3, 10.0, 93.4),
    ("VGG", "cifar10", "zero-mean"): (None, None, 92.9),
    ("VGG", "cifar100", "dropout"): (77.5, 79.8, 81.7),
    ("VGG", "cifar100", "layer"): (76.9, 5.0, 82.2),
}
# ELBO in nats, deterministic and ensemble accuracy in per cent
PAPER_PARAMETERISATIONS = {
    "layer": ("-5.9e+02", 11.3, 99.2),
    "neuron": ("-7.7e+02", 11.3, 99.2),
    "weight": ("-6.4e+04", 81.3, 99.2),
    "additive": ("-2.3e+04", 96.3, 99.2),
    "student-t": ("", "chance", 99.2),
}
LAYERS = {
    "dropout": "dropout",
    "layer": "one alpha per layer",
    "neuron": "one alpha per neuron",
    "weight": "one alpha per weight",
    "additive": "additive",
    "student-t": "one alpha per layer, Student-t prior",
    "zero-mean": "zero mean, from scratch",
}


def with_error(values: Sequence[float], unit: float = 1.0, digits: int = 2) -> str:
    """The mean over seeds, with its standard error if there are several.

    >>> with_error([0.991, 0.993], 100), with_error([], 100)
    ('99.20 ± 0.10', '')
    """
    found = unit * np.asarray(values, float)
    if not len(found):
        return ""
    error = f" ± {found.std(ddof=1) / np.sqrt(len(found)):.{digits}f}" if len(found) > 1 else ""
    return f"{found.mean():.{digits}f}{error}"


def tables(results: Results) -> list[Table]:
    return [_accuracies(results), _parameterisations(results), _sparse(results), _attacks(results), _toy(results)]


def _accuracies(results: Results) -> Table:
    columns = ("stochastic", "deterministic", "ensemble")
    rows = []
    for key in _distinct(results, "accuracy", ("network", "data", "method")):
        own = {"experiment": "accuracy", **dict(zip(("network", "data", "method"), key, strict=True))}
        paper = PAPER_ACCURACIES.get(key, (None, None, None))
        numbers = [
            text
            for column, reported in zip(columns, paper, strict=True)
            for text in (
                with_error(results.values(column, **own).tolist(), 100),
                "" if reported is None else str(reported),
            )
        ]
        rows.append([key[0], key[1], LAYERS[key[2]], *numbers])
    headings = ["network", "data", "layer", *(text for column in columns for text in (f"{column} (%)", "paper"))]
    return Table("Test accuracy of single draws, of the mean weights, and of the average over draws", headings, rows)


def _parameterisations(results: Results) -> Table:
    rows = []
    for (method,) in _distinct(results, "parameterisation", ("method",)):
        own, paper = {"experiment": "parameterisation", "method": method}, PAPER_PARAMETERISATIONS[method]
        elbo = results.values("elbo", **own)
        # a proper prior with so heavy tails has a KL of millions of nats that says nothing about the fit
        row = [LAYERS[method], "" if method == "student-t" else f"{elbo.mean():.3g}", paper[0]]
        for name, reported in (("deterministic", paper[1]), ("ensemble", paper[2])):
            row += [with_error(results.values(name, **own).tolist(), 100), str(reported)]
        row += [with_error(results.values(name, **own).tolist(), 100) for name in ("without_means", "shuffled")]
        rows.append([*row, with_error(results.values("log_alpha", **own).tolist())])
    headings = ["parameterisation", "ELBO (nats)", "paper", "deterministic (%)", "paper", "ensemble (%)", "paper"]
    headings += ["means set to 0 (%)", "variances shuffled (%)", "log alpha"]
    return Table("Parameterisations of the first dense layer, trained on the subset", headings, rows)


def _sparse(results: Results) -> Table:
    cells = results.of(experiment="curvature")
    rows = [["0", *[with_error([cell.result["ensemble"] for cell in cells], 100)] * 2]]
    for i, share in enumerate(cells[0].result["removed"] if cells else ()):
        accuracies = [with_error([cell.result[rest][i] for cell in cells], 100) for rest in ("zero", "mean")]
        rows.append([f"{100 * share:g}", *accuracies])
    headings = ["removed (%)", "set to 0 (%)", "set to their means (%)"]
    return Table(
        "Ensemble accuracy without the weights of the smallest kappa (paper: no loss up to 98 %)", headings, rows
    )


def _attacks(results: Results) -> Table:
    cells, rows = results.of(experiment="attack"), []
    for name in cells[0].result if cells else ():
        own = [cell.result[name] for cell in cells]
        row = [name, with_error([o["accuracy"][0] for o in own], 100)]
        row += [with_error([float(np.mean(o["success"][1:])) for o in own], 100)]
        row += [with_error([o["success"][-1] for o in own], 100)]
        row += [with_error([o["entropy"][0] for o in own], digits=3)]
        rows.append([*row, with_error([float(np.mean(o["entropy"][1:])) for o in own], digits=3)])
    headings = [
        "",
        "clean accuracy (%)",
        "success, mean (%)",
        "success, last (%)",
        "entropy, clean",
        "entropy, attacked",
    ]
    return Table("Targeted attacks: success rates and mean predictive entropies in nats", headings, rows)


def _toy(results: Results) -> Table:
    names = ("stochastic", "deterministic", "ensemble")
    row = [with_error(results.values(name, experiment="toy").tolist(), 100) for name in names]
    return Table("Four Gaussians through two units with mean 0", [f"{name} (%)" for name in names], [row])


def _distinct(results: Results, experiment: str, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The different settings of an experiment, in the order of the study."""
    found = (tuple(str(cell.settings[n]) for n in names) for cell in results.of(experiment=experiment))
    return list(dict.fromkeys(found))
