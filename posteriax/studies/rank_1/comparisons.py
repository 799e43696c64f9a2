"""Numbers of two methods compared, one value per seed."""

from collections.abc import Callable, Sequence

from posteriax.studies.rank_1.settings import DEEP, DETERMINISTIC
from posteriax.studies.results import Results, look_up

Measure = Callable[[Results], Sequence[float]]
IMAGES, CLOTHES, RECORDS = "cifar10", "fashion", "physionet2012"  # parts of the names of data sets


def by_seed(results: Results, data: str, method: str, path: str) -> dict[int, float]:
    """An entry of a method's results, by seed; of the deterministic baseline, the mean over an ensemble's members."""
    if method == DETERMINISTIC:
        method, path = DEEP, path if path == "parameters" else f"member.{path}"
    return {
        cell.seed: look_up(cell.result, path)
        for cell in results.cells
        if data in cell.settings["data"] and cell.settings["method"] == method
    }


def less(data: str, one: str, other: str, path: str) -> Measure:
    """The first method's entry less the second's, by seed."""

    def measure(results: Results) -> Sequence[float]:
        first, second = by_seed(results, data, one, path), by_seed(results, data, other, path)
        return [first[seed] - second[seed] for seed in sorted(first) if seed in second]

    return measure


def parameter_ratio(data: str, one: str, other: str) -> Measure:
    """Parameters of one method over those of the other."""

    def measure(results: Results) -> Sequence[float]:
        first, second = by_seed(results, data, one, "parameters"), by_seed(results, data, other, "parameters")
        members = results.settings["members"] if other == DETERMINISTIC and results.settings else 1
        return [members * first[seed] / second[seed] for seed in sorted(first) if seed in second]

    return measure


def less_than_best(data: str, one: str, others: Sequence[str], path: str) -> Measure:
    """The first method's entry less the smallest of the others'."""

    def measure(results: Results) -> Sequence[float]:
        first = by_seed(results, data, one, path)
        rest = [by_seed(results, data, other, path) for other in others]
        return [first[s] - min(own[s] for own in rest) for s in sorted(first) if all(s in own for own in rest)]

    return measure
