"""Shift: are new inputs like those seen before? Judged from predictions alone, without labels.

Single inputs: scores that are higher where the posterior is less certain, and how well they detect out-of-distribution
inputs. Whole sets: two-sample tests of whether predictions for new inputs are distributed like those for a reference
set, in how certain they are (Kolmogorov-Smirnov) and in what they predict (how often each class); and the expected
accuracy.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from posteriax.likelihoods.predictive import Predictive
from posteriax.metrics.ranking import auroc, average_precision, fpr_at_tpr

SIGNIFICANT = 0.01
PERMUTATIONS = 4999
EXACT_UP_TO = 1000  # examples; beyond that, the test's asymptotic distribution is as good and much faster


def ood_scores(predictive: Predictive) -> dict[str, np.ndarray]:
    """Scores of how far out of distribution each example seems to be, (N,) each; higher is further out.

    For classes: "max_probability" (1 - max p), "entropy" and "mutual_information", both in nats; averaged if an example
    has several labels. For real numbers: "std"; the root mean square if an example has several targets.

    Args:
        predictive: what ``posterior.predict(x)`` returns, also with ``reduce=True``.

    >>> import posteriax as px
    >>> outputs = np.array([[[9.0, 0.0], [9.0, 0.0]], [[9.0, 0.0], [0.0, 9.0]]])  # two draws that disagree on one
    >>> scores = ood_scores(px.likelihoods.ClassPredictive(px.Categorical(), outputs))
    >>> {name: score.round(2).tolist() for name, score in scores.items()}
    {'max_probability': [0.0, 0.5], 'entropy': [0.0, 0.69], 'mutual_information': [0.0, 0.69]}
    """
    return predictive.uncertainties()


class Detection(NamedTuple):
    """How well a score tells outside from inside inputs.

    Args:
        auroc: the chance that an outside input scores higher than an inside one; 0.5 by chance, best 1.
        auc_pr: area under the precision-recall curve (average precision) of finding outside inputs; the share of
            outside inputs by chance, best 1.
        fpr95: the share of outside inputs accepted at the threshold that accepts 95 % of inside inputs; 0.95 by chance,
            best 0.

    >>> Detection(auroc=0.9, auc_pr=0.8, fpr95=0.3).auroc
    0.9
    """

    auroc: float
    auc_pr: float
    fpr95: float


def ood_detection(inside: Predictive, outside: Predictive) -> dict[str, Detection]:
    """How well each of :func:`ood_scores` tells out-of-distribution inputs from in-distribution ones.

    Args:
        inside: a posterior's predictions for in-distribution inputs, such as the test set.
        outside: its predictions for out-of-distribution inputs.

    >>> import posteriax as px
    >>> classes = lambda a: px.likelihoods.ClassPredictive(px.Categorical(), np.full((1, 50, 2), [a, 0.0]))
    >>> sure, unsure = classes(3.0), classes(0.1)
    >>> px.evaluation.ood_detection(sure, unsure)["entropy"]
    Detection(auroc=1.0, auc_pr=1.0, fpr95=0.0)
    """
    _check_same_kind("inside", inside, "outside", outside)
    ours, theirs = ood_scores(inside), ood_scores(outside)
    return {name: _detection(ours[name], theirs[name]) for name in ours}


def detection(inside: Predictive, outside: Predictive) -> dict[str, float]:
    """:func:`ood_detection` as columns of a comparison: "auroc" and "fpr95" by entropy (or std), then other AUROCs.

    >>> import posteriax as px
    >>> normal = lambda scale: px.likelihoods.NormalPredictive(px.Normal(scale=scale), np.zeros((1, 50, 1)), {})
    >>> sure, unsure = normal(1.0), normal(2.0)
    >>> detection(sure, unsure)
    {'auroc': 1.0, 'fpr95': 0.0}
    """
    detections = ood_detection(inside, outside)
    first = detections.pop(inside.reported_uncertainty)
    others = {f"auroc_{name}": other.auroc for name, other in detections.items()}
    return {"auroc": first.auroc, "fpr95": first.fpr95, **others}


class Change(NamedTuple):
    """A mean over the reference set and over the new one.

    >>> round(Change(0.9, 0.7).difference, 3)
    -0.2
    """

    reference: float
    new: float

    @property
    def difference(self) -> float:
        return self.new - self.reference


class TwoSample(NamedTuple):
    """A test of whether two sets come from one distribution: their distance, 0 to 1, and its p-value.

    >>> TwoSample(statistic=0.2, p_value=0.03).p_value
    0.03
    """

    statistic: float
    p_value: float


@dataclass(frozen=True)
class Drift:
    """How predictions for new inputs differ from those for a reference set. Print it.

    Args:
        examples: how many there are in the reference set and in the new one.
        changes: the means of both sets by name: "confidence" (max p), "entropy" and "mutual_information" in nats; for
            real numbers "std".
        certainty: Kolmogorov-Smirnov test of the entropies, or the standard deviations.
        answers: the total variation between the predicted classes' shares, with a permutation test; for real numbers
            a Kolmogorov-Smirnov test of the predicted means.
        expected_accuracy: on the new inputs, estimated without labels; None for real numbers.
        uncertainty: which of the changes `certainty` tests.

    >>> same = TwoSample(statistic=0.05, p_value=0.6)
    >>> print(Drift((200, 200), {"entropy": Change(0.3, 0.31)}, same, same, 0.9).verdict)
    No sign of drift (p = 1). Expect an accuracy of about 0.90.
    """

    examples: tuple[int, int]
    changes: dict[str, Change]
    certainty: TwoSample
    answers: TwoSample
    expected_accuracy: float | None
    uncertainty: str = "entropy"

    @property
    def p_value(self) -> float:
        """The p-value of both tests together: twice the smaller one (Bonferroni)."""
        return min(1.0, 2 * min(self.certainty.p_value, self.answers.p_value))

    @property
    def drifted(self) -> bool:
        """Whether the p-value is below 0.01."""
        return self.p_value < SIGNIFICANT

    @property
    def verdict(self) -> str:
        """One line."""
        if not self.drifted:
            text = f"No sign of drift ({_p(self.p_value)})."
        else:
            largest = max(self.certainty.statistic, self.answers.statistic)
            size = "Slight" if largest < 0.1 else "Clear" if largest < 0.3 else "Strong"
            text = f"{size} drift ({_p(self.p_value)}): {' and '.join(self._findings())}."
        if self.expected_accuracy is None:
            return text
        return f"{text} Expect an accuracy of about {self.expected_accuracy:.2f}."

    def _findings(self) -> list[str]:
        findings = []
        if 2 * self.certainty.p_value < SIGNIFICANT:
            name, change = self.uncertainty, self.changes[self.uncertainty]
            how = "less" if change.difference > 0 else "more"
            means = f"{_number(name, change.reference)} -> {_number(name, change.new)}"
            findings.append(f"predictions are {how} certain ({name} {means})")
        if 2 * self.answers.p_value < SIGNIFICANT:
            what, distance = ("values", "KS") if self.expected_accuracy is None else ("classes", "TV")
            findings.append(f"the distribution of predicted {what} changed ({distance} {self.answers.statistic:.2f})")
        return findings

    def __str__(self) -> str:
        rows = [("", "reference", "new", "change")]
        rows += [
            (name.replace("_", " "), _number(name, c.reference), _number(name, c.new), _number(name, c.difference, "+"))
            for name, c in self.changes.items()
        ]
        lines = [f"{name:<20}{ours:>10}{theirs:>10}{change:>10}" for name, ours, theirs, change in rows]
        tests = (("certainty", self.certainty), ("answers", self.answers))
        lines += [f"difference of {name}: {test.statistic:.3f} ({_p(test.p_value)})" for name, test in tests]
        return "\n".join([f"{self.examples[1]} new examples against {self.examples[0]}", *lines, self.verdict])


def drift(reference: Predictive, new: Predictive, *, reference_accuracy: float | None = None) -> Drift:
    """Compare predictions for new inputs with those for a reference set; labels are not needed.

    Args:
        reference: predictions for held-out inputs, such as the test set. Not for training data, on which a network is
            more confident than on anything new.
        new: the same posterior's predictions for new inputs, with the same number of draws.
        reference_accuracy: the accuracy on the reference set, if known: the expected accuracy is then this plus the
            change in mean confidence, else the new mean confidence itself, which over-confident networks overstate.
            Both are estimates for mild shifts: far from the data, networks can be confident and wrong.

    The tests assume independent examples, and independent labels if an example has several: video frames are not.

    >>> import posteriax as px
    >>> logits = np.random.default_rng(0).normal(size=(300, 3))
    >>> before, after = (px.likelihoods.ClassPredictive(px.Categorical(), (a * logits)[None]) for a in (4.0, 1.0))
    >>> print(px.evaluation.drift(before, after, reference_accuracy=0.8))
    300 new examples against 300
                         reference       new    change
    confidence               0.858     0.587    -0.271
    entropy                  0.349     0.887    +0.537
    mutual information       0.000     0.000    ...0.000
    difference of certainty: 0.740 (p < 0.0001)
    difference of answers: 0.000 (p = 1)
    Strong drift (p < 0.0001): predictions are less certain (entropy 0.349 -> 0.887). Expect an accuracy of about 0.53.
    """
    _check_same_kind("reference", reference, "new", new)
    if reference_accuracy is not None and not 0.0 <= reference_accuracy <= 1.0:
        raise ValueError(f"reference_accuracy must be between 0 and 1, got {reference_accuracy}")
    ours, theirs = ood_scores(reference), ood_scores(new)
    means = {name: Change(float(ours[name].mean()), float(theirs[name].mean())) for name in ours}
    name = reference.reported_uncertainty
    examples, certainty = (len(reference.mean), len(new.mean)), _ks(ours[name], theirs[name])
    sure = reference.confidence(), new.confidence()
    if sure[0] is None or sure[1] is None:
        if reference_accuracy is not None:
            raise ValueError("reference_accuracy is for predictions of classes, but these are of real numbers")
        return Drift(examples, means, certainty, _compare_values(reference.point(), new.point()), None, name)
    means.pop("max_probability", None)  # the same as the confidence, the other way round
    confidence = Change(float(sure[0].mean()), float(sure[1].mean()))
    expected = confidence.new if reference_accuracy is None else reference_accuracy + confidence.difference
    answers = _compare_labels(reference.point(), new.point(), classes=reference.mean.shape[-1])
    means = {"confidence": confidence, **means}
    return Drift(examples, means, certainty, answers, float(np.clip(expected, 0.0, 1.0)), name)


def _ks(ours: np.ndarray, theirs: np.ndarray) -> TwoSample:
    from scipy.stats import ks_2samp  # slow to import, and seldom needed

    method = "exact" if max(len(ours), len(theirs)) <= EXACT_UP_TO else "asymp"
    statistic, p_value = ks_2samp(ours, theirs, method=method)
    return TwoSample(float(statistic), float(p_value))


def _compare_labels(ours: np.ndarray, theirs: np.ndarray, classes: int) -> TwoSample:
    """Total variation between the shares of the predicted labels, with a permutation test."""
    a, b = (np.bincount(labels.reshape(-1), minlength=classes) for labels in (ours, theirs))
    n, m = a.sum(), b.sum()
    dealt = np.random.default_rng(0).multivariate_hypergeometric(a + b, n, size=PERMUTATIONS)
    # integers, so that ties are exact
    observed, by_chance = (np.abs(m * counts - n * (a + b - counts)).sum(axis=-1) for counts in (a, dealt))
    p_value = (1 + (by_chance >= observed).sum()) / (1 + PERMUTATIONS)
    return TwoSample(float(observed / (2 * n * m)), float(p_value))


def _compare_values(ours: np.ndarray, theirs: np.ndarray) -> TwoSample:
    """A test of the predicted means: that of the target that differs most, with a Bonferroni correction."""
    columns = zip(ours.reshape(len(ours), -1).T, theirs.reshape(len(theirs), -1).T, strict=True)
    tests = [_ks(a, b) for a, b in columns]
    worst = min(tests, key=lambda test: test.p_value)
    return TwoSample(worst.statistic, min(1.0, len(tests) * worst.p_value))


def _detection(inside: np.ndarray, outside: np.ndarray) -> Detection:
    score = np.concatenate([inside, outside])
    is_outside = np.repeat([False, True], [len(inside), len(outside)])
    values = auroc(score, is_outside), average_precision(score, is_outside), fpr_at_tpr(-score, ~is_outside, 0.95)
    return Detection(*map(float, values))


def _check_same_kind(first_name: str, first: Predictive, second_name: str, second: Predictive) -> None:
    for argument, predictive in ((first_name, first), (second_name, second)):
        if not isinstance(predictive, Predictive):
            kind = type(predictive).__name__
            raise TypeError(f"{argument} must be predictions, as returned by posterior.predict(x), got {kind}")
    if first.reported_uncertainty != second.reported_uncertainty or first.mean.shape[1:] != second.mean.shape[1:]:
        raise ValueError(
            f"{first_name} and {second_name} must be predictions of one posterior, got {_described(first)} and "
            f"{_described(second)} per example"
        )


def _described(predictive: Predictive) -> str:
    what = "real numbers" if predictive.confidence() is None else "probabilities"
    return f"{what} of shape {predictive.mean.shape[1:]}"


def _number(name: str, value: float, sign: str = "") -> str:
    return f"{value:{sign}.3g}" if name == "std" else f"{value:{sign}.3f}"  # in the units of y, or near 1


def _p(value: float) -> str:
    return "p < 0.0001" if value < 1e-4 else f"p = {value:.2g}"
