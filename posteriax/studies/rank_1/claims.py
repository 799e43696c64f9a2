"""What the paper claims about rank-1 networks, as numbers with bounds, fixed before the run.

All differences are between two methods with the same seed; negative is better for NLL and ECE.
"""

import math

import numpy as np

from posteriax.studies.rank_1.comparisons import CLOTHES, IMAGES, RECORDS, less, less_than_best, parameter_ratio
from posteriax.studies.rank_1.remarks import REMARKS
from posteriax.studies.rank_1.settings import (
    BATCH_ENSEMBLE,
    CAUCHY,
    DEEP,
    DETERMINISTIC,
    DROPOUT,
    EQUAL,
    GAUSSIAN,
    HALF_CAUCHY,
    INPUT,
    LOG_NORMAL,
    MEAN_FIELD,
    MIXTURE,
    OUTPUT,
    size_name,
)
from posteriax.studies.study import Claim, with_remarks

SAME_PARAMETERS = 0.01
SAME_ACCURACY = 0.01
NAMES = {
    "clean.nll": "NLL",
    "clean.ece": "ECE",
    "clean.accuracy": "accuracy",
    "corrupted.nll": "cNLL",
    "corrupted.ece": "cECE",
    "corrupted.accuracy": "cA",
    "clean.auc_pr": "AUC-PR",
}
# the paper's CIFAR-10 figures
PAPER = {
    DETERMINISTIC: {"clean.nll": 0.159, "clean.ece": 0.023, "corrupted.nll": 1.05, "corrupted.ece": 0.153},
    BATCH_ENSEMBLE: {"clean.nll": 0.143, "clean.ece": 0.020, "corrupted.nll": 1.02, "corrupted.ece": 0.129},
    GAUSSIAN: {"clean.nll": 0.128, "clean.ece": 0.008, "corrupted.nll": 0.84, "corrupted.ece": 0.080},
}


def _better_everywhere(data: str, called: str) -> tuple[Claim, ...]:
    """The main table: rank-1 against its two baselines of the same size, on NLL and ECE, clean and corrupted."""
    found = []
    for baseline in (DETERMINISTIC, BATCH_ENSEMBLE):
        for path in ("clean.nll", "clean.ece", "corrupted.nll", "corrupted.ece"):
            name, own, other = NAMES[path], PAPER[GAUSSIAN][path], PAPER[baseline][path]
            found.append(
                Claim(
                    f"{called}: {name} below {baseline}",
                    f"{called}: a rank-1 Gaussian mixture of four has a lower {name} than the "
                    f"{'deterministic network' if baseline == DETERMINISTIC else baseline} with as many parameters.",
                    f"CIFAR-10, WRN-28-10: {own:g} and {other:g}",
                    f"{name}, rank-1 Gaussian less {baseline}",
                    less(data, GAUSSIAN, baseline, path),
                    below=0.0,
                )
            )
        found.append(
            Claim(
                f"{called}: parameters of {baseline}",
                f"{called}: the comparison with {baseline} is at the same number of parameters, within 1 %.",
                "36.6M and 36.5M" if baseline == DETERMINISTIC else "36.6M and 36.6M",
                f"parameters, rank-1 Gaussian over {baseline}",
                parameter_ratio(data, GAUSSIAN, baseline),
                above=1 - SAME_PARAMETERS,
                below=1 + SAME_PARAMETERS,
            )
        )
    return tuple(found)


def _single_networks(data: str, called: str) -> tuple[Claim, ...]:
    """The rows of the main table that are one network."""
    return (
        Claim(
            f"{called}: accuracy",
            f"{called}: the rank-1 Gaussian mixture is at least as accurate as the deterministic network.",
            "96.3 and 96.0 %",
            "accuracy, rank-1 Gaussian less deterministic",
            less(data, GAUSSIAN, DETERMINISTIC, "clean.accuracy"),
            above=0.0,
        ),
        Claim(
            f"{called}: Cauchy under corruption",
            f"{called}: Cauchy factors are more robust than Gaussian ones: a lower NLL on corrupted images.",
            "cNLL 0.74 and 0.84",
            "cNLL, rank-1 Cauchy less Gaussian",
            less(data, CAUCHY, GAUSSIAN, "corrupted.nll"),
            below=0.0,
        ),
        Claim(
            f"{called}: mean-field underfits",
            f"{called}: mean-field VI over all weights, with twice the parameters, is worse than no posterior at all.",
            "NLL 0.214 and 0.159",
            "NLL, mean-field less deterministic",
            less(data, MEAN_FIELD, DETERMINISTIC, "clean.nll"),
            above=0.0,
        ),
        Claim(
            f"{called}: better than dropout",
            f"{called}: rank-1 Gaussian factors have a lower NLL than MC dropout.",
            "0.128 and 0.160",
            "NLL, rank-1 Gaussian less MC dropout",
            less(data, GAUSSIAN, DROPOUT, "clean.nll"),
            below=0.0,
        ),
        Claim(
            f"{called}: better than dropout under corruption",
            f"{called}: the same on corrupted images.",
            "cNLL 0.84 and 1.27",
            "cNLL, rank-1 Gaussian less MC dropout",
            less(data, GAUSSIAN, DROPOUT, "corrupted.nll"),
            below=0.0,
        ),
    )


def _ensembles(data: str, called: str) -> tuple[Claim, ...]:
    """Its rows with several networks, and the members of the mixture among themselves."""
    return (
        Claim(
            f"{called}: deep ensembles lead",
            f"{called}: a deep ensemble with four times the parameters has a lower NLL than the rank-1 mixture.",
            "0.114 and 0.128",
            "NLL, deep ensemble less rank-1 Gaussian",
            less(data, DEEP, GAUSSIAN, "clean.nll"),
            below=0.0,
        ),
        Claim(
            f"{called}: calibrated under corruption",
            f"{called}: on corrupted images the rank-1 mixture is better calibrated than the deep ensemble of the same "
            "number of parameters.",
            "cECE 0.080 and 0.089",
            "cECE, rank-1 Gaussian less deep ensemble of equal parameters",
            less(data, GAUSSIAN, EQUAL, "corrupted.ece"),
            below=0.0,
        ),
        Claim(
            f"{called}: diversity",
            f"{called}: members of the rank-1 mixture disagree more often than those of BatchEnsemble, for their "
            "accuracy.",
            "a figure: higher at every checkpoint",
            "disagreement over error rate, rank-1 Gaussian less BatchEnsemble",
            less(data, GAUSSIAN, BATCH_ENSEMBLE, "diversity"),
            above=0.0,
        ),
    )


ABLATIONS = (
    *(
        Claim(
            f"factors on both sides: {NAMES[path]}",
            f"On corrupted images, factors on inputs and outputs have a lower {NAMES[path]} than on either side alone.",
            "a figure: best on all three scores",
            f"{NAMES[path]}, both less the better of inputs and outputs",
            less_than_best(CLOTHES, GAUSSIAN, (INPUT, OUTPUT), path),
            below=0.0,
        )
        for path in ("corrupted.nll", "corrupted.ece")
    ),
    Claim(
        "factors on one side, clean",
        "On clean images it does not matter much for the accuracy where the factors are.",
        "a figure: comparable",
        "accuracy, both less the mean of inputs and outputs",
        lambda results: np.mean(
            [less(CLOTHES, GAUSSIAN, one, "clean.accuracy")(results) for one in (INPUT, OUTPUT)], axis=0
        ).tolist(),
        above=-SAME_ACCURACY,
        below=SAME_ACCURACY,
    ),
    Claim(
        "more components",
        "Up to eight components, more are better, with the same number of rows per step.",
        "a figure: all scores improve from K = 1 to 8",
        "NLL, K = 8 less K = 1",
        less(CLOTHES, size_name(8), size_name(1), "clean.nll"),
        below=0.0,
    ),
    Claim(
        "more components, corrupted",
        "The same on corrupted images.",
        "a figure",
        "cNLL, K = 8 less K = 1",
        less(CLOTHES, size_name(8), size_name(1), "corrupted.nll"),
        below=0.0,
    ),
    Claim(
        "too many components",
        "With 16 components and as many rows, each step sees few new images, and scores decline.",
        "a figure: K = 16 is worse than K = 8",
        "NLL, K = 16 less K = 8",
        less(CLOTHES, size_name(16), size_name(8), "clean.nll"),
        above=0.0,
    ),
    Claim(
        "average likelihood",
        "Training with the average of the components' log-likelihoods generalises better than with that of the "
        "mixture.",
        "a figure: lower test NLL",
        "NLL, average less log-mixture",
        less(CLOTHES, GAUSSIAN, MIXTURE, "clean.nll"),
        below=0.0,
    ),
    Claim(
        "average likelihood, members",
        "So do the components by themselves.",
        "a figure",
        "mean NLL of single components, average less log-mixture",
        less(CLOTHES, GAUSSIAN, MIXTURE, "member.clean.nll"),
        below=0.0,
    ),
    Claim(
        "real factors: Gaussian",
        "Factors of both signs are better than positive ones: Gaussian against log-normal.",
        "text: typically outperform",
        "NLL, Gaussian less log-normal",
        less(CLOTHES, GAUSSIAN, LOG_NORMAL, "clean.nll"),
        below=0.0,
    ),
    Claim(
        "real factors: Cauchy",
        "The same for Cauchy against half-Cauchy factors.",
        "text: typically outperform",
        "NLL, Cauchy less half-Cauchy",
        less(CLOTHES, CAUCHY, HALF_CAUCHY, "clean.nll"),
        below=0.0,
    ),
)

_DEATHS = (
    (DETERMINISTIC, "clean.nll", "0.209 and 0.213"),
    (BATCH_ENSEMBLE, "clean.nll", "0.209 and 0.215"),
    (MEAN_FIELD, "clean.nll", "0.209 and 0.221"),
    (DETERMINISTIC, "clean.ece", "0.0132 and 0.0135"),
    (BATCH_ENSEMBLE, "clean.ece", "0.0132 and 0.0162"),
    (MEAN_FIELD, "clean.auc_pr", "0.391 and 0.373"),
)
DEATHS = (
    *(
        Claim(
            f"mortality: {NAMES[path]} against {other}",
            f"Mortality: the rank-1 Gaussian LSTM has a {'higher' if path == 'clean.auc_pr' else 'lower'} "
            f"{NAMES[path]} than the {'fully Bayesian (mean-field)' if other == MEAN_FIELD else other} one.",
            f"MIMIC-III: {figures}",
            f"{NAMES[path]}, rank-1 Gaussian less {other}",
            less(RECORDS, GAUSSIAN, other, path),
            above=0.0 if path == "clean.auc_pr" else -math.inf,
            below=math.inf if path == "clean.auc_pr" else 0.0,
        )
        for other, path, figures in _DEATHS
    ),
    Claim(
        "mortality: deep ensembles lead",
        "Mortality: a deep ensemble with four times the parameters has the lowest NLL.",
        "MIMIC-III: 0.206 and 0.209",
        "NLL, deep ensemble less rank-1 Gaussian",
        less(RECORDS, DEEP, GAUSSIAN, "clean.nll"),
        below=0.0,
    ),
)


CLAIMS = with_remarks(
    (
        *_better_everywhere(IMAGES, "CIFAR-10"),
        *_single_networks(IMAGES, "CIFAR-10"),
        *_ensembles(IMAGES, "CIFAR-10"),
        *_better_everywhere(CLOTHES, "Fashion-MNIST"),
        *_single_networks(CLOTHES, "Fashion-MNIST"),
        *_ensembles(CLOTHES, "Fashion-MNIST"),
        *ABLATIONS,
        *DEATHS,
    ),
    REMARKS,
)
