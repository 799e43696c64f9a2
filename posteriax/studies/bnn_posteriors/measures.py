"""Quantities of the claims, from the results: one value per seed, or per split of a UCI set."""

from collections.abc import Callable

import numpy as np

from posteriax.studies.bnn_posteriors.experiments import noise_name
from posteriax.studies.bnn_posteriors.methods import ENSEMBLE_ROW, HMC_ROW, MAP_ROW, SG_MCMC, VI_ROW
from posteriax.studies.results import CellResult, Results, look_up

Measure = Callable[[Results], np.ndarray]
NONE = np.array([])
SG_MCMC_ROWS = "SG-MCMC"  # the mean of its kinds
FIDELITY = (SG_MCMC_ROWS, ENSEMBLE_ROW, VI_ROW, MAP_ROW)  # from the closest to HMC to the furthest, as the paper finds


def targets(results: Results, path: str = "", experiment: str = "methods") -> list[str]:
    """The targets of an experiment, in the order of the study; with a path, those whose results have it."""
    cells = results.of(experiment=experiment)
    return list(dict.fromkeys(str(cell.settings["target"]) for cell in cells if not path or has(cell, path)))


def has(cell: CellResult, path: str) -> bool:
    try:
        look_up(cell.result, path)
    except KeyError:
        return False
    return True


def of_method(results: Results, target: str, method: str, path: str) -> np.ndarray:
    """A score of a method by seed; of SG-MCMC, the mean of its kinds."""
    own = {"experiment": "methods", "target": target}
    if method == SG_MCMC_ROWS:
        kinds = [kind for kind in SG_MCMC if has(results.of(**own)[0], kind)]
        return np.mean([results.values(f"{kind}.{path}", **own) for kind in kinds], axis=0)
    return results.values(f"{method}.{path}", **own)


def over_targets(measure: Callable[[Results, str], np.ndarray], path: str) -> Measure:
    """The mean over the targets that have this entry, by seed."""

    def mean(results: Results) -> np.ndarray:
        found = [measure(results, target) for target in targets(results, path)]
        return np.mean(found, axis=0) if found else NONE

    return mean


def difference(one: str, other: str, path: str) -> Measure:
    """A score of one method minus that of another, averaged over targets."""
    return over_targets(
        lambda results, target: of_method(results, target, one, path) - of_method(results, target, other, path),
        f"{HMC_ROW}.{path}",
    )


def over_confidence(method: str) -> Measure:
    """Confidence minus accuracy."""
    return over_targets(
        lambda results, target: (
            of_method(results, target, method, "confidence") - of_method(results, target, method, "accuracy")
        ),
        f"{HMC_ROW}.confidence",
    )


def lost_accuracy(results: Results, target: str, method: str) -> np.ndarray:
    return of_method(results, target, method, "accuracy") - of_method(results, target, method, "corrupted.accuracy")


def closest_distance(results: Results, target: str) -> np.ndarray:
    """Total variation from HMC: of the closest approximation, minus that of one chain from the others."""
    first = results.of(experiment="methods", target=target)[0]
    names = [name for name in (*SG_MCMC, ENSEMBLE_ROW, VI_ROW, MAP_ROW) if has(first, name)]
    rows = [of_method(results, target, name, "total_variation") for name in names]
    return np.min(rows, axis=0) - of_method(results, target, HMC_ROW, "total_variation")


def weights_minus_functions(results: Results, target: str) -> np.ndarray:
    weights, functions = (of_method(results, target, "quality", f"{space}_plain") for space in ("weight", "function"))
    return np.log10(weights) - np.log10(functions)


def sweep(results: Results, path: str, vary: str) -> dict[float, np.ndarray]:
    """A result of the mixing experiment by trajectory length, or by step size at the whole trajectory."""
    other = {"trajectory": "step", "step": "trajectory"}[vary]
    cells = [cell for cell in results.of(experiment="mixing") if cell.settings[other] == 1.0]
    values = sorted({float(cell.settings[vary]) for cell in cells})
    return {value: results.values(path, experiment="mixing", **{vary: value, other: 1.0}) for value in values}


def settled(results: Results) -> np.ndarray:
    """Test NLL of single draws: that of the second quarter of a chain over that of its second half, minus 1."""
    found = []
    for cell in results.of(experiment="mixing", trajectory=1.0, step=1.0):
        each = np.asarray(cell.result["draw_nll"], float)
        quarter, half = len(each) // 4, len(each) // 2
        found.append(each[quarter:half].mean() / each[half:].mean() - 1)
    return np.array(found)


def first_minus_last(results: Results, path: str, vary: str) -> np.ndarray:
    """At the smallest value of what varies, minus at 1 (trajectories) or at the largest (steps)."""
    found = sweep(results, path, vary)
    last = 1.0 if vary == "trajectory" else max(found, default=1.0)
    return found[min(found)] - found[last] if last in found and min(found) < last else NONE


def by_temperature(results: Results, path: str, **own: str) -> dict[float, np.ndarray]:
    """A score by temperature."""
    temperatures = sorted({float(cell.settings["temperature"]) for cell in results.of(**own)})
    return {t: results.values(path, temperature=t, **own) for t in temperatures}


def colder(results: Results, **own: str) -> np.ndarray:
    """NLL at the best temperature below 1, minus that at 1."""
    found = by_temperature(results, "nll", **own)
    cold = [values for t, values in found.items() if t < 1]
    return np.min(cold, axis=0) - found[1.0] if cold and 1.0 in found else NONE


def against_one(results: Results, temperature: float, target: str) -> np.ndarray:
    """NLL at a temperature minus that at 1."""
    found = by_temperature(results, "nll", experiment="temperature", target=target)
    return found[temperature] - found[1.0] if {temperature, 1.0} <= found.keys() else NONE


def over_tempered(measure: Callable[[Results, str], np.ndarray]) -> Measure:
    """The mean over the targets that were tempered, by seed."""

    def mean(results: Results) -> np.ndarray:
        found = [measure(results, target) for target in targets(results, experiment="temperature")]
        return np.mean(found, axis=0) if found else NONE

    return mean


def prior_accuracies(results: Results, *, families: bool) -> np.ndarray:
    """Accuracies, (priors, seeds), of Gaussians of all variances, or of all families of the usual variance."""
    cells = results.of(experiment="prior")
    usual = {cell.settings["variance"] for cell in cells if cell.settings["family"] != "Normal"}
    chosen = {
        (cell.settings["family"], cell.settings["variance"])
        for cell in cells
        if (cell.settings["variance"] in usual if families else cell.settings["family"] == "Normal")
    }
    each = [results.values("accuracy", experiment="prior", family=f, variance=v) for f, v in sorted(chosen)]
    return np.array(each) if each else np.zeros((0, 0))


def spread_of(accuracies: np.ndarray) -> np.ndarray:
    return np.ptp(accuracies, axis=0) if accuracies.size else NONE


def worst_prior_minus_map(results: Results) -> np.ndarray:
    """The lowest accuracy over the variances of the prior, minus MAP's on the same examples."""
    accuracies = prior_accuracies(results, families=False)
    varied = results.settings.get("varied", {}).get("name")
    if not accuracies.size or varied not in targets(results):
        return NONE
    return accuracies.min(axis=0) - of_method(results, str(varied), MAP_ROW, "accuracy")


def under_noise(one: str, other: str, *, noisy: bool) -> Measure:
    """Accuracy of one row minus another: the mean over all levels of noise, or without noise."""

    def measure(results: Results) -> np.ndarray:
        levels = [noise for noise in results.settings.get("noises", ()) if (noise > 0) == noisy]
        each = [
            results.values(f"{one}.{noise_name(noise)}", experiment="shift")
            - results.values(f"{other}.{noise_name(noise)}", experiment="shift")
            for noise in levels
        ]
        return np.mean(each, axis=0) if each else NONE

    return measure


def log_likelihood(method: str, data: str) -> Measure:
    """The test log-likelihood of a method on a UCI set, by split."""
    return lambda results: results.values(f"{method}.log_likelihood", experiment="regression", data=data)


def above_own(data: str) -> Measure:
    """HMC's log-likelihood minus the better of mean-field VI and the deep ensemble, by split."""

    def measure(results: Results) -> np.ndarray:
        ours, ensemble, vi = (log_likelihood(name, data)(results) for name in (HMC_ROW, ENSEMBLE_ROW, VI_ROW))
        return ours - np.maximum(ensemble, vi)

    return measure
