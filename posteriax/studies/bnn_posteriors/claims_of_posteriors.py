"""Claims on HMC's mixing, its predictions, and how close other methods come; bounds fixed before the run."""

import numpy as np

from posteriax.studies.bnn_posteriors.measures import (
    FIDELITY,
    closest_distance,
    difference,
    first_minus_last,
    lost_accuracy,
    of_method,
    over_confidence,
    over_targets,
    settled,
    weights_minus_functions,
)
from posteriax.studies.bnn_posteriors.methods import ENSEMBLE_ROW, HMC_ROW, MAP_ROW
from posteriax.studies.study import Claim

MEAN = "mean over the networks"

MIXING = (
    Claim(
        "mixes in function space",
        "HMC mixes in function space: for most test predictions R-hat is below 1.1.",
        "CIFAR-10: mostly below 1.1, at most 4; IMDB: at most 1.85; three chains",
        f"share of class probabilities at test points with an R-hat above 1.1, {MEAN}",
        over_targets(lambda r, t: of_method(r, t, "quality", "function_plain_far"), "quality.function_plain_far"),
        below=0.1,
    ),
    Claim(
        "mixes worse in weight space",
        "The worst R-hat of weights is larger than that of predictions.",
        "CIFAR-10: 55 and 4; IMDB: 16.5 and 1.85",
        f"log10 of the largest R-hat of weights minus that of predictions, {MEAN}",
        over_targets(weights_minus_functions, "quality.weight_plain"),
        above=0.0,
    ),
    Claim(
        "burn-in is short",
        "From random weights, performance is stationary after some 20 to 50 iterations.",
        "a figure: flat after 20 to 50 iterations",
        "test NLL of single draws, second quarter of the chains over their second half, minus 1",
        settled,
        above=-0.05,
        below=0.05,
    ),
    Claim(
        "long trajectories pay",
        "At the same number of iterations, trajectories of pi / 2 times the prior's scale predict better than short "
        "ones.",
        "CIFAR-10 accuracy .831, .861, .889, .886 at 1/4, 1/2, 1, 3/2 of it",
        "test NLL with a quarter of the trajectory minus that with the whole, in nats",
        lambda r: first_minus_last(r, "nll", "trajectory"),
        above=0.0,
    ),
    Claim(
        "small steps are accepted",
        "Acceptance falls steeply with the step size.",
        "72, 46, 22 and 12.5 % at 1, 5, 10 and 50 times 1e-5",
        "acceptance at the smallest step minus that at the largest",
        lambda r: first_minus_last(r, "quality.acceptance", "step"),
        above=0.3,
    ),
    Claim(
        "several chains beat one",
        "Averaging over chains improves on one chain.",
        "CIFAR-10 log-likelihood -.322 with one chain, -.307 with three",
        f"test NLL of one chain minus that of all, in nats, {MEAN}",
        over_targets(
            lambda r, t: of_method(r, t, HMC_ROW, "one_chain_nll") - of_method(r, t, HMC_ROW, "nll"), f"{HMC_ROW}.nll"
        ),
        above=0.0,
    ),
    Claim(
        "the average beats single draws",
        "A single draw of HMC predicts much worse than the average over draws.",
        "CIFAR-10 log-likelihood -.86 and -.307; IMDB -.64 and -.308",
        f"test NLL of single draws minus that of the average, in nats, {MEAN}",
        over_targets(lambda r, t: of_method(r, t, "single", "nll") - of_method(r, t, HMC_ROW, "nll"), "single.nll"),
        above=0.1,
    ),
)

PREDICTIONS = (
    Claim(
        "more accurate than deep ensembles",
        "HMC is more accurate than deep ensembles.",
        "CIFAR-10 .907 and .891; CIFAR-100 .695 and .655; IMDB .868 and .859",
        f"accuracy, HMC minus deep ensemble, {MEAN}",
        difference(HMC_ROW, ENSEMBLE_ROW, "accuracy"),
        above=0.0,
    ),
    Claim(
        "better likelihood than deep ensembles",
        "HMC has a higher test likelihood than deep ensembles.",
        "CIFAR-10 -.307 and -.335; CIFAR-100 -1.12 and -1.4; IMDB -.308 and -.357",
        f"test NLL, deep ensemble minus HMC, in nats, {MEAN}",
        difference(ENSEMBLE_ROW, HMC_ROW, "nll"),
        above=0.0,
    ),
    Claim(
        "more accurate than one network",
        "HMC is more accurate than a single trained network.",
        "CIFAR-10 .907 and .834; IMDB .868 and .829",
        f"accuracy, HMC minus MAP, {MEAN}",
        difference(HMC_ROW, MAP_ROW, "accuracy"),
        above=0.0,
    ),
    Claim(
        "better likelihood than one network",
        "HMC has a higher test likelihood than a single trained network.",
        "CIFAR-10 -.307 and -.80; IMDB -.308 and -.757",
        f"test NLL, MAP minus HMC, in nats, {MEAN}",
        difference(MAP_ROW, HMC_ROW, "nll"),
        above=0.0,
    ),
    Claim(
        "HMC is under-confident",
        "HMC is less confident than accurate.",
        "a figure of reliability, CIFAR-10",
        f"confidence minus accuracy of HMC, {MEAN}",
        over_confidence(HMC_ROW),
        below=0.0,
    ),
    Claim(
        "one network is over-confident",
        "A single trained network is more confident than accurate.",
        "a figure of reliability, CIFAR-10",
        f"confidence minus accuracy of MAP, {MEAN}",
        over_confidence(MAP_ROW),
        above=0.0,
    ),
    Claim(
        "detects inputs from elsewhere",
        "HMC detects inputs from another data set better than deep ensembles.",
        "AUROC, CIFAR-10 against CIFAR-100: .857 and .853; against SVHN: .881 and .853",
        "AUROC of the largest probability, HMC minus deep ensemble, Fashion-MNIST against MNIST (at the paper's scale "
        "CIFAR-10 against CIFAR-100), mean over the networks",
        difference(HMC_ROW, ENSEMBLE_ROW, "auroc"),
        above=0.0,
    ),
)

PAPER_FIDELITY = {  # CIFAR-10, of SGLD, SGHMC, CLR and CLR-Prec on average; deep ensembles; mean-field; SGD
    "total_variation": ("total variation", ".107", ".115", ".136", ".190"),
    "agreement": ("agreement", "91.8", "91.5", "88.8", "85.5 %"),
    "corrupted.total_variation": ("total variation on corrupted images", ".204", ".220", ".245", ".334"),
}


def _order(path: str, place: int) -> Claim:
    """One step of the order: the method at this place is closer to HMC than the next."""
    closer, further = FIDELITY[place], FIDELITY[place + 1]
    words, *figures = PAPER_FIDELITY[path]
    one, other = (closer, further) if path == "agreement" else (further, closer)
    return Claim(
        f"{closer} before {further}: {words}",
        f"{closer} is closer to HMC than {further}: {words}.",
        f"CIFAR-10: {figures[place]} and {figures[place + 1]}",
        f"{words} with HMC, {one} minus {other}, {MEAN}",
        difference(one, other, path),
        above=0.0,
    )


FIDELITIES = (
    *(_order(path, place) for path in PAPER_FIDELITY for place in range(3)),
    Claim(
        "none is HMC",
        "All scalable methods make predictions that are distinct from HMC's.",
        "CIFAR-10 total variation: one chain from the others .074, the closest method .099",
        f"total variation from HMC: the closest method minus one chain from the others, {MEAN}",
        over_targets(closest_distance, f"{HMC_ROW}.total_variation"),
        above=0.0,
    ),
)

CORRUPTED = (
    Claim(
        "deep ensembles are more robust",
        "Deep ensembles are more accurate on corrupted images than HMC.",
        "CIFAR-10-C: 77.0 and 70.9 %",
        "accuracy over all corruptions, deep ensemble minus HMC, mean over the networks for images",
        difference(ENSEMBLE_ROW, HMC_ROW, "corrupted.accuracy"),
        above=0.0,
    ),
    Claim(
        "SGLD is more robust",
        "SGLD is more accurate on corrupted images than HMC.",
        "CIFAR-10-C: 78.8 and 70.9 %",
        "accuracy over all corruptions, SGLD minus HMC, mean over the networks for images",
        difference("SGLD", HMC_ROW, "corrupted.accuracy"),
        above=0.0,
    ),
    Claim(
        "HMC loses most",
        "Corruption costs HMC more accuracy than it costs a single network.",
        "CIFAR-10 to CIFAR-10-C: 18.7 and 12.4 %",
        "clean minus corrupted accuracy, HMC's minus MAP's, mean over the networks for images",
        over_targets(
            lambda r, t: np.subtract(lost_accuracy(r, t, HMC_ROW), lost_accuracy(r, t, MAP_ROW)),
            f"{HMC_ROW}.corrupted.accuracy",
        ),
        above=0.0,
    ),
)
