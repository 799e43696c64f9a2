"""What is to be predicted, as the target's values suggest: classes, counts or a real number."""

from typing import Any

import numpy as np

from posteriax.cli.user_data.messages import DataError
from posteriax.cli.user_data.targets import Task, is_numbers

FEW_NUMBERS = 20  # distinct whole numbers that are treated as classes
FEWEST_COUNTS = 4  # distinct counts; fewer whole numbers are classes in any case
FEW_COUNTS = 10  # distinct whole numbers that are treated as classes even if they are spread as counts
LARGEST_MEAN, LARGEST_DISPERSION = 20.0, 5.0  # of numbers that are taken for counts
FEWEST_TO_TELL = 30  # rows, to tell counts from other whole numbers
COULD_BE_COUNTS = 1000.0  # the largest mean of counts that a Poisson distribution may describe


def infer_task(name: str, values: Any, task: Task | None) -> Task:
    """The given task, or the one that the target's values suggest.

    Text and a few distinct whole numbers are classes; more than ten of them, or one that occurs only once, are counts
    if they include 0 and are spread as counts are; anything else is a quantity.

    >>> infer_task("kind", ["oak", "elm"], None), infer_task("height", np.array([1.5, 2.0]), None)
    ('classification', 'regression')
    """
    is_text = not is_numbers(values)
    if task is not None:
        if task != "classification" and is_text:
            what = "a regression" if task == "regression" else "counts"
            raise DataError(f"target {name!r} is text, so it cannot be the target of {what}")
        return task
    if is_text:
        return "classification"
    numbers = np.asarray(values, np.float64)
    different = np.unique(numbers)
    whole = bool((different == np.round(different)).all())
    few = len(different) <= 2 or (len(different) <= FEW_NUMBERS and 3 * len(different) <= len(numbers))
    if are_counts(numbers) and (len(different) > FEW_COUNTS or np.unique(numbers, return_counts=True)[1].min() == 1):
        return "counts"
    return "classification" if whole and few else "regression"


def about_task(name: str, values: Any, task: Task, told: Task | None) -> list[str]:
    """A line about counts: that they were found, or that the target may be counts."""
    if told is not None or not is_numbers(values):
        return []
    numbers = np.asarray(values, np.float64)
    if task == "counts":
        found = f"whole numbers from 0 to {numbers.max():,.0f}"
        how = "predicted by a Poisson distribution; --task regression treats it as a real number"
        return [f"target {name!r} looks like counts ({found}): {how}"]
    whole = bool((numbers >= 0).all() and (numbers == np.round(numbers)).all())
    several = len(np.unique(numbers)) >= FEWEST_COUNTS and len(numbers) >= FEWEST_TO_TELL
    likely = are_counts(numbers) if task == "classification" else numbers.min() <= 0.05 * numbers.mean()
    if whole and several and likely and numbers.mean() <= COULD_BE_COUNTS and _skewness(numbers) > 0:
        found = f"whole numbers from {numbers.min():.0f} to {numbers.max():,.0f}"
        return [f"target {name!r} holds {found}; if they count something, say --task counts"]
    return []


def are_counts(numbers: np.ndarray) -> bool:
    """Whether numbers are spread as counts: whole, from 0 on, small, skewed, their variance a few times their mean.

    >>> rng = np.random.default_rng(0)
    >>> are_counts(rng.poisson(rng.uniform(1, 10, 300)) * 1.0), are_counts(rng.integers(0, 21, 300) * 1.0)
    (True, False)
    """
    if len(numbers) < FEWEST_TO_TELL or numbers.min() != 0 or (numbers != np.round(numbers)).any():
        return False
    if len(np.unique(numbers)) < FEWEST_COUNTS:
        return False
    mean, variance = float(numbers.mean()), float(numbers.var())
    small = mean <= LARGEST_MEAN and variance <= LARGEST_DISPERSION * mean
    return small and _skewness(numbers) > 0.25


def _skewness(numbers: np.ndarray) -> float:
    deviations = numbers - numbers.mean()
    return float(np.mean(deviations**3) / max(numbers.std(), 1e-300) ** 3)
