"""The target: classes, a quantity or counts; what it is, its values as the network sees them, and its likelihood."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeGuard, get_args

import numpy as np

from posteriax.likelihoods.beta import Beta
from posteriax.likelihoods.classes import Categorical
from posteriax.likelihoods.likelihood import Likelihood
from posteriax.likelihoods.negative_binomial import NegativeBinomial
from posteriax.likelihoods.normal import Normal
from posteriax.likelihoods.numbers import TargetUnits
from posteriax.likelihoods.ordinal import Ordinal
from posteriax.likelihoods.poisson import Poisson
from posteriax.likelihoods.survival import SurvivalTime
from posteriax.likelihoods.zero_inflated import ZeroInflatedPoisson
from posteriax.tabular.messages import TableError, label_of, shown
from posteriax.tabular.number_formats import PLAIN, NumberFormat

Task = Literal[
    "classification",
    "ordinal",
    "regression",
    "counts",
    "overdispersed-counts",
    "zero-inflated-counts",
    "fractions",
    "times",
]
TASKS = get_args(Task)
OF_CLASSES = ("classification", "ordinal")
OF_COUNTS = ("counts", "overdispersed-counts", "zero-inflated-counts")
MOST_CLASSES = 200
FEW_NUMBERS = 20  # distinct whole numbers that are treated as classes
FEWEST_COUNTS = 4  # distinct counts; fewer whole numbers are classes in any case
FEW_COUNTS = 10  # distinct whole numbers that are treated as classes even if they are spread as counts
LARGEST_MEAN, LARGEST_DISPERSION = 20.0, 5.0  # of numbers that are taken for counts
FEWEST_TO_TELL = 30  # rows, to tell counts from other whole numbers
SHORTEST_TIME, LONGEST_TIME = 1e-30, 1e30  # whose quotients and squares float32 can hold
LARGEST_COUNT = 2.0**53  # up to here every whole number has a float64
COULD_BE_COUNTS = 1000.0  # the largest mean of counts that a Poisson distribution may describe

TargetValues = np.ndarray | list[str]  # of numbers, or of text; as the file has them


class _AsGiven:
    """Targets that the network sees in their own units."""

    @property
    def units(self) -> TargetUnits:
        """Of targets as the network sees them."""
        return TargetUnits()

    def restore(self, y: np.ndarray) -> np.ndarray:
        """Encoded targets as predictions are scored against them."""
        return y


class _Standardised(ABC):
    """Real numbers that the network sees with a mean of 0 and a standard deviation of 1."""

    noise: Literal["constant", "predicted"]

    @property
    @abstractmethod
    def units(self) -> TargetUnits:
        """What standardises them."""

    def likelihood(self) -> Likelihood:
        """What a network's outputs say about encoded targets."""
        return Normal(scale="predicted" if self.noise == "predicted" else "learned")

    def encode(self, values: TargetValues | Sequence[float]) -> np.ndarray:
        """Standardised values."""
        return self.units.standardise(values).astype(np.float32)

    def restore(self, y: np.ndarray) -> np.ndarray:
        """Encoded targets as predictions are scored against them: in their own units."""
        return self.units.restore(y)


@dataclass(frozen=True)
class Classes(_AsGiven):
    """A target of classes, by name; of an ordinal one in their order.

    >>> Classes("kind", ("elm", "oak")).encode(["oak", "elm"]).tolist()
    [1, 0]
    """

    name: str
    labels: tuple[str, ...]
    task: Task = "classification"

    @property
    def outputs(self) -> int:
        return 1 if self.task == "ordinal" else len(self.labels)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the labels 0 to C - 1; None for numbers."""
        return self.labels

    def describe(self) -> str:
        """What the target is, in a few words."""
        return f"one of {len(self.labels)} {'grades' if self.task == 'ordinal' else 'classes'}"

    def likelihood(self) -> Likelihood:
        """What a network's outputs say about encoded targets."""
        return Ordinal(len(self.labels)) if self.task == "ordinal" else Categorical()

    def encode(self, values: TargetValues | Sequence[float]) -> np.ndarray:
        """Labels 0 to C - 1."""
        index = {label: i for i, label in enumerate(self.labels)}
        names = [str(value) for value in as_labels(values)]
        unknown = sorted(set(names) - set(index))
        if unknown:
            raise TableError(f"target {self.name!r} has classes that were not in the training data: {shown(unknown)}")
        return np.array([index[name] for name in names], np.int32)


@dataclass(frozen=True)
class Quantity(_Standardised):
    """A target of real numbers: mean and scale in the training rows, how it is written, whether its noise depends on
    the inputs.

    >>> target = Quantity("height", mean=10.0, scale=2.0)
    >>> target.encode([12.0]).tolist(), target.restore(np.array([1.0])).tolist()
    ([1.0], [12.0])
    """

    name: str
    mean: float
    scale: float
    form: NumberFormat = PLAIN
    noise: Literal["constant", "predicted"] = "constant"
    task: Task = field(default="regression", init=False)
    class_names: ClassVar[None] = None

    @property
    def units(self) -> TargetUnits:
        """Of targets as the network sees them: standardised, or as they are."""
        return TargetUnits(self.mean, self.scale)

    @property
    def outputs(self) -> int:
        return 2 if self.noise == "predicted" else 1

    def describe(self) -> str:
        """What the target is, in a few words."""
        return "a real number"


@dataclass(frozen=True)
class Quantities(_Standardised):
    """Several targets of real numbers at once: for each its name, mean and scale in the training rows, and how it is
    written; and whether their noise depends on the inputs.

    >>> targets = Quantities(("height", "age"), (10.0, 40.0), (2.0, 20.0), (PLAIN, PLAIN))
    >>> targets.encode([[12.0, 20.0]]).tolist(), targets.name
    ([[1.0, -1.0]], 'height, age')
    """

    names: tuple[str, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    forms: tuple[NumberFormat, ...]
    noise: Literal["constant", "predicted"] = "constant"
    task: Task = field(default="regression", init=False)
    class_names: ClassVar[None] = None

    @property
    def name(self) -> str:
        """The names of all of them."""
        return ", ".join(self.names)

    @property
    def units(self) -> TargetUnits:
        """Of targets as the network sees them: standardised, or as they are."""
        return TargetUnits(self.means, self.scales)

    @property
    def outputs(self) -> int:
        return len(self.names) * (2 if self.noise == "predicted" else 1)

    def describe(self) -> str:
        """What the target is, in a few words."""
        return f"{len(self.names)} real numbers"


@dataclass(frozen=True)
class Counts(_AsGiven):
    """A target of counts, 0, 1, 2, ..., their mean in the training rows, and how the numbers are written.

    >>> target = Counts("visits", mean=4.0)
    >>> target.encode([3.0]).tolist(), target.likelihood()
    ([3], Poisson(base_rate=4.0))
    """

    name: str
    mean: float
    form: NumberFormat = PLAIN
    task: Task = "counts"
    class_names: ClassVar[None] = None

    @property
    def outputs(self) -> int:
        return self.likelihood().outputs_per_target

    def describe(self) -> str:
        """What the target is, in a few words."""
        return "a count"

    def likelihood(self) -> Likelihood:
        """What a network's outputs say about encoded targets."""
        if self.task == "overdispersed-counts":
            return NegativeBinomial(base_rate=self.mean)
        return (ZeroInflatedPoisson if self.task == "zero-inflated-counts" else Poisson)(base_rate=self.mean)

    def encode(self, values: TargetValues | Sequence[float]) -> np.ndarray:
        """The counts as they are."""
        numbers = np.asarray(values, np.float64)
        wrong = numbers[(numbers < 0) | (numbers != np.round(numbers))]
        if wrong.size:
            raise TableError(f"target {self.name!r} has the value {wrong[0]:g}, but counts are whole numbers from 0 on")
        if (large := numbers[numbers > LARGEST_COUNT]).size:
            raise TableError(
                f"target {self.name!r} has the value {large[0]:g}, which is too large to count to the last"
            )
        return numbers.astype(np.int64)  # some are beyond 32 bits


@dataclass(frozen=True)
class Fractions(_AsGiven):
    """A target of numbers strictly between 0 and 1, and how they are written.

    >>> Fractions("share").encode([0.25]).tolist()
    [0.25]
    """

    name: str
    form: NumberFormat = PLAIN
    task: Task = field(default="fractions", init=False)
    outputs: ClassVar[int] = 1
    class_names: ClassVar[None] = None

    def describe(self) -> str:
        """What the target is, in a few words."""
        return "a fraction between 0 and 1"

    def likelihood(self) -> Likelihood:
        """What a network's outputs say about encoded targets."""
        return Beta()

    def encode(self, values: TargetValues | Sequence[float]) -> np.ndarray:
        """The fractions as they are."""
        numbers = np.asarray(values, np.float64)
        fractions = numbers.astype(np.float32)  # in which 1e-50 is 0, and 1 - 1e-9 is 1
        wrong = numbers[(fractions <= 0) | (fractions >= 1)]
        if wrong.size:
            are_percentages = numbers.min() >= 0 and np.median(numbers) > 1 and numbers.max() <= 100
            advice = "divide percentages by 100" if are_percentages else "use --task regression, or move it inside"
            rounded = f", which is {round(wrong[0])} in float32" if 0 < wrong[0] < 1 else ""
            raise TableError(
                f"target {self.name!r} has the value {wrong[0]:.12g}{rounded}, but fractions lie strictly between 0 "
                f"and 1: {advice}"
            )
        return fractions


@dataclass(frozen=True)
class Times(_AsGiven):
    """A target of times until an event, negative where they are censored: a typical time in the training rows, and the
    column that says whether the event was observed.

    >>> Times("days", typical=30.0, event="died").likelihood()
    SurvivalTime(base_time=30.0, scale='learned')
    """

    name: str
    typical: float
    event: str
    form: NumberFormat = PLAIN
    task: Task = field(default="times", init=False)
    outputs: ClassVar[int] = 1
    class_names: ClassVar[None] = None

    def describe(self) -> str:
        """What the target is, in a few words."""
        return f"a time until {self.event!r}"

    def likelihood(self) -> Likelihood:
        """What a network's outputs say about encoded targets."""
        return SurvivalTime(base_time=self.typical)

    def encode(self, values: TargetValues | Sequence[float]) -> np.ndarray:
        """The times as they are, negative where they are censored."""
        numbers = np.asarray(values, np.float64)
        if (numbers == 0).any():
            raise TableError(f"target {self.name!r} has the value 0, but times until an event are positive")
        sizes = np.abs(numbers)
        wrong = sizes[(sizes < SHORTEST_TIME) | (sizes > LONGEST_TIME)]
        if wrong.size:
            raise TableError(f"target {self.name!r} has the value {wrong[0]:g}: choose a unit that suits the times")
        return numbers.astype(np.float32)


Target = Classes | Quantity | Quantities | Counts | Fractions | Times


def spread(numbers: np.ndarray) -> float:
    """The standard deviation; 0 if nothing but rounding differs.

    >>> spread(np.array([1.0, 3.0])), spread(np.full(3, 0.1)), spread(2.0**-100 * np.array([1, 3])) == 2.0**-100
    (1.0, 0.0, True)
    """
    scale = float(numbers.std())
    return scale if scale > 1e-12 * float(np.abs(numbers).max()) else 0.0


def make_target(
    name: str, values: TargetValues, task: Task, train: np.ndarray, form: NumberFormat = PLAIN, event: str | None = None
) -> Target:
    """The target of a table: its classes in all rows, or mean and scale in the training rows."""
    if task in OF_CLASSES:
        different = list(np.unique(np.asarray(values, np.float64))) if is_numbers(values) else sorted(set(values))
        if task == "ordinal" and not is_numbers(values):
            raise TableError(
                f"target {name!r} is text, whose order is unknown: write its grades as numbers, 1 for the lowest"
            )
        if task == "ordinal" and len(different) < 3:
            raise TableError(f"target {name!r} has {len(different)} grades: an ordinal target needs three, use classes")
        return Classes(name, tuple(as_labels(different)), task)
    numbers = np.asarray(values, np.float64)[train]
    if not spread(numbers):
        raise TableError(
            f"target {name!r} has only one value, {label_of(float(numbers[0]))}: there is nothing to learn"
        )
    if task == "regression":
        return Quantity(name, float(numbers.mean()), spread(numbers), form)
    if task == "times":
        if not (numbers > 0).any():
            raise TableError(f"target {name!r}: no training row has an event, so that no time is known to its end")
        times = Times(name, float(np.exp(np.log(np.abs(numbers[numbers != 0])).mean())), str(event), form)
        times.encode(values)  # raises if one is 0
        return times
    target: Target = Fractions(name, form) if task == "fractions" else Counts(name, float(numbers.mean()), form, task)
    target.encode(values)  # raises unless all are counts, or fractions
    return target


def make_quantities(
    names: Sequence[str], values: np.ndarray, train: np.ndarray, forms: Sequence[NumberFormat]
) -> Quantities:
    """Several targets, (rows, targets): means and scales in the training rows."""
    scales = [spread(column) for column in values[train].T]
    for name, scale in zip(names, scales, strict=True):
        if not scale:
            raise TableError(f"target {name!r} has only one value in the training rows: there is nothing to learn")
    return Quantities(tuple(names), tuple(values[train].mean(axis=0).tolist()), tuple(scales), tuple(forms))


def check_classes(name: str, values: TargetValues) -> np.ndarray:
    """The class of every row as a number, for a stratified split; an error if one is too small or alone."""
    labels, classes, counts = np.unique(np.asarray(as_labels(values)), return_inverse=True, return_counts=True)
    if len(labels) == 1:
        raise TableError(f"target {name!r} has only one class, {str(labels[0])!r}: there is nothing to distinguish")
    if len(labels) > MOST_CLASSES or 2 * len(labels) > len(classes):
        advice = "choose another target" if not is_numbers(values) else "is it a regression (--task regression)?"
        raise TableError(f"target {name!r} has {len(labels)} different values in {len(classes)} rows: {advice}")
    if counts.min() < 2:
        single = [str(label) for label, count in zip(labels, counts, strict=True) if count < 2]
        occur = "occurs" if len(single) == 1 else "occur"
        raise TableError(
            f"target {name!r}: {shown(single)} {occur} in one row only, but training and test set need one row each"
        )
    return classes


def is_numbers(values: TargetValues) -> TypeGuard[np.ndarray]:
    return isinstance(values, np.ndarray) and values.dtype.kind in "biuf"


def as_labels(values: Iterable[str | float]) -> list[str]:
    return [value if isinstance(value, str) else label_of(float(value)) for value in values]


def infer_task(name: str, values: TargetValues, task: Task | None) -> Task:
    """The given task, or the one that the target's values suggest.

    Text and a few distinct whole numbers are classes; more than ten of them, or one that occurs only once, are counts
    if they include 0 and are spread as counts are; anything else is a quantity.

    >>> infer_task("kind", ["oak", "elm"], None), infer_task("height", np.array([1.5, 2.0]), None)
    ('classification', 'regression')
    """
    is_text = not is_numbers(values)
    if task is not None:
        if task not in OF_CLASSES and is_text:
            what = "a regression" if task == "regression" else task
            raise TableError(f"target {name!r} is text, so it cannot be the target of {what}")
        return task
    if is_text:
        return "classification"
    numbers = np.asarray(values, np.float64)
    different = np.unique(numbers)
    integers = bool((different == np.round(different)).all())
    few = len(different) <= 2 or (len(different) <= FEW_NUMBERS and 3 * len(different) <= len(numbers))
    if are_counts(numbers) and (len(different) > FEW_COUNTS or np.unique(numbers, return_counts=True)[1].min() == 1):
        return "counts"
    return "classification" if integers and few else "regression"


def about_task(name: str, values: TargetValues, task: Task, told: Task | None) -> list[str]:
    """A line about counts: that they were found, or that the target may be counts."""
    if told is not None or not is_numbers(values):
        return []
    numbers = np.asarray(values, np.float64)
    if task == "counts":
        span = f"whole numbers from 0 to {numbers.max():,.0f}"
        how = "predicted by a Poisson distribution; --task regression treats it as a real number"
        return [f"target {name!r} looks like counts ({span}): {how}"]
    counting = bool((numbers >= 0).all() and (numbers == np.round(numbers)).all())
    several = len(np.unique(numbers)) >= FEWEST_COUNTS and len(numbers) >= FEWEST_TO_TELL
    likely = are_counts(numbers) if task == "classification" else numbers.min() <= 0.05 * numbers.mean()
    if counting and several and likely and numbers.mean() <= COULD_BE_COUNTS and _skewness(numbers) > 0:
        span = f"whole numbers from {numbers.min():.0f} to {numbers.max():,.0f}"
        return [f"target {name!r} holds {span}; if they count something, say --task counts"]
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
