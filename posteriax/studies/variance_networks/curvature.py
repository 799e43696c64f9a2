"""kappa along a run, and what remains of the ensemble without the weights whose kappa is small.

kappa = sigma^2 d2(-log p(D | w)) / dw^2     at the means, scaled to the size of the training set, in nats
"""

from typing import Any

import numpy as np

from posteriax import analysis
from posteriax.studies.study import Cell
from posteriax.studies.variance_networks.accuracy import curve, ensemble_accuracy, watched_accuracies
from posteriax.studies.variance_networks.settings import Settings
from posteriax.studies.variance_networks.training import LAYER, Examples, lenet_problem, load_images, train
from posteriax.studies.workbench import Workbench

THRESHOLD = 10**1.5  # the paper's kappa_0
EDGES = np.arange(-14.0, 8.0)  # of the histogram of log10 |kappa|; values outside count in the first or last bin


def run_curvature(cell: Cell, settings: Settings, bench: Workbench) -> dict[str, Any]:
    """LeNet-5 with softplus behind its variance layer, so that the likelihood has second derivatives."""
    training, test = load_images(bench, str(cell.settings["data"]), settings.subset, settings.subset_test)
    accuracy = watched_accuracies(test, settings)

    def watch(posterior: Any) -> dict[str, float]:
        return accuracy(posterior) | _summary(_kappa(posterior, training, settings))

    problem, families = lenet_problem("softplus", settings, cell.seed)
    posterior = train(
        bench,
        "softplus",
        problem,
        families,
        training,
        settings,
        epochs=settings.subset_epochs,
        batch_size=settings.subset_batch,
        key=cell.seed,
        watch=watch,
    )
    trace, found = posterior.trace, analysis.kappa(posterior, _some(training, settings), LAYER)
    accuracy_by_share: dict[str, list[float]] = {"zero": [], "mean": []}
    for share in settings.shares:
        threshold = found.threshold(keep=1 - share)
        for rest, values in accuracy_by_share.items():
            sparse = analysis.sparse_ensemble(posterior, found, threshold, rest).posterior  # type: ignore[arg-type]
            values.append(ensemble_accuracy(sparse, test, settings.draws))
    return {
        "curve": curve(posterior) | {"above": trace["above"]},
        "histograms": np.stack([trace[name] for name in _bins()], axis=1),
        "ensemble": ensemble_accuracy(posterior, test, settings.draws),
        "removed": settings.shares,
        **accuracy_by_share,
    }


def _some(training: Examples, settings: Settings) -> Examples:
    return training[0][: settings.kappa_examples], training[1][: settings.kappa_examples]


def _kappa(posterior: Any, training: Examples, settings: Settings) -> np.ndarray:
    some = _some(training, settings)
    return np.abs(analysis.kappa(posterior, some, LAYER)[LAYER]) * len(training[1]) / len(some[1])


def _bins() -> list[str]:
    return [f"kappa_{i:02d}" for i in range(len(EDGES) - 1)]


def _summary(values: np.ndarray) -> dict[str, float]:
    """The share of weights above the threshold and in each bin of the histogram; zeros are in the first.

    >>> summary = _summary(np.array([0.0, 1e-20, 2.0, 1e3]))
    >>> summary["above"], summary["kappa_00"], summary["kappa_14"]
    (0.25, 0.5, 0.25)
    """
    logs = np.log10(np.maximum(values.reshape(-1), 1e-25))
    counts, _ = np.histogram(np.clip(logs, EDGES[0], EDGES[-1]), EDGES)
    return {"above": float((values > THRESHOLD).mean())} | dict(
        zip(_bins(), (counts / values.size).tolist(), strict=True)
    )
