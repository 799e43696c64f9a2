"""Claims on temperatures, priors, noise and regression; bounds fixed before the run."""

from posteriax.studies.bnn_posteriors.experiments import AUGMENTATIONS
from posteriax.studies.bnn_posteriors.measures import (
    above_own,
    against_one,
    colder,
    log_likelihood,
    over_tempered,
    prior_accuracies,
    spread_of,
    under_noise,
    worst_prior_minus_map,
)
from posteriax.studies.bnn_posteriors.methods import HMC_ROW
from posteriax.studies.bnn_posteriors.settings import SETS
from posteriax.studies.study import Claim

SLIGHT = 0.01  # nats: a gain that does not count
MEAN = "mean over the networks"

TEMPERATURES = (
    Claim(
        "no cold posterior effect",
        "Posteriors colder than T = 1 do not predict better.",
        "IMDB log-likelihood -.47, -.425, -.38, -.31 at T = .03, .1, .3, 1",
        f"test NLL at the best T below 1 minus that at 1, in nats, {MEAN}",
        over_tempered(lambda r, target: colder(r, experiment="temperature", target=target)),
        above=-SLIGHT,
    ),
    Claim(
        "cold posteriors hurt",
        "A posterior as cold as T = 0.03 predicts worse than the Bayes posterior.",
        "IMDB accuracy .772 and .866, log-likelihood -.47 and -.31",
        f"test NLL at T = 0.03 minus that at 1, in nats, {MEAN}",
        over_tempered(lambda r, target: against_one(r, 0.03, target)),
        above=0.0,
    ),
    Claim(
        "warm posteriors hurt",
        "A posterior as warm as T = 10 predicts worse than the Bayes posterior.",
        "IMDB accuracy .672 and .866, log-likelihood -.66 and -.31",
        f"test NLL at T = 10 minus that at 1, in nats, {MEAN}",
        over_tempered(lambda r, target: against_one(r, 10.0, target)),
        above=0.0,
    ),
    Claim(
        "augmentation makes cold posteriors better",
        "With data augmentation there is a cold posterior effect.",
        "with augmentation, in the program of Wenzel et al. (2020): yes",
        "SGHMC with crops and flips: test NLL at the best T below 1 minus that at 1, in nats",
        lambda r: colder(r, experiment="augmentation", augmentation=AUGMENTATIONS[1]),
        below=-SLIGHT,
    ),
    Claim(
        "without augmentation they are not",
        "Without data augmentation the same sampler shows no cold posterior effect.",
        "the same program without augmentation: no",
        "SGHMC without augmentation: test NLL at the best T below 1 minus that at 1, in nats",
        lambda r: colder(r, experiment="augmentation", augmentation=AUGMENTATIONS[0]),
        above=-SLIGHT,
    ),
)

PRIORS = (
    Claim(
        "the prior's scale hardly matters",
        "Results are robust to the scale of a Gaussian prior.",
        "CIFAR-10 accuracy .867 to .880 for variances from 1/40 to 1; IMDB .849 to .868 from 1/160 to 1",
        "largest minus smallest accuracy over the variances",
        lambda r: spread_of(prior_accuracies(r, families=False)),
        below=0.03,
    ),
    Claim(
        "the prior's family hardly matters",
        "Heavier-tailed and mixture priors of the same variance predict equally well.",
        "IMDB accuracy: Gaussian .866, mixture of Gaussians .863, logistic .869",
        "largest minus smallest accuracy over five families of one variance",
        lambda r: spread_of(prior_accuracies(r, families=True)),
        below=0.02,
    ),
    Claim(
        "better than one network under any scale",
        "HMC is more accurate than a single trained network under every scale of the prior.",
        "CIFAR-10 .867 at worst, SGD .834",
        "the lowest accuracy over the variances, minus MAP's",
        worst_prior_minus_map,
        above=0.0,
    ),
)

NOISE = (
    Claim(
        "weights of unlit pixels keep their prior",
        "Weights of pixels that are black in all training images have their prior as posterior.",
        "a theorem of the second paper",
        "root mean square of these weights under HMC, in units of the prior's scale",
        lambda r: r.values("unlit.hmc", experiment="shift"),
        above=0.9,
        below=1.1,
    ),
    Claim(
        "MAP sets them to 0",
        "At a MAP solution the same weights are 0.",
        "a theorem of the second paper",
        "their root mean square at MAP solutions, in units of the prior's scale",
        lambda r: r.values("unlit.map", experiment="shift"),
        below=0.1,
    ),
    Claim(
        "one network is more robust to noise",
        "On noisy images a single trained network is more accurate than HMC.",
        "MNIST: .97 and .80 to .92 at noise 1.1; HMC below SGD at every level",
        "accuracy averaged over all levels of noise on the pixels, MAP minus HMC, MNIST",
        under_noise("MAP", "HMC", noisy=True),
        above=0.0,
    ),
    Claim(
        "EmpCov is the remedy",
        "A prior aligned with the covariance of the inputs makes HMC more robust to noise.",
        "CIFAR-10, LeNet, Gaussian noise of severity 3: .565 to .685",
        "accuracy averaged over all levels of noise, HMC with EmpCov minus HMC, MNIST",
        under_noise("HMC, EmpCov", "HMC", noisy=True),
        above=0.0,
    ),
    Claim(
        "at no cost on clean images",
        "On clean images the same prior is as accurate as the isotropic one.",
        "CIFAR-10, LeNet: .775 and .775",
        "accuracy without noise, HMC with EmpCov minus HMC, MNIST",
        under_noise("HMC, EmpCov", "HMC", noisy=False),
        above=-0.02,
        below=0.02,
    ),
)

# the best log-likelihood of the paper's SGLD, SGD and SWAG, and HMC's, read off its figure
PAPER_UCI = {
    "uci/boston": (-2.46, -2.39),
    "uci/concrete": (-3.02, -2.67),
    "uci/energy": (-1.5, -1.1),
    "uci/naval": (6.65, 9.65),
}


def _own_name(data: str) -> str:
    return data.removeprefix("uci/")


def _beats_paper(data: str) -> Claim:
    others, hmc = PAPER_UCI[data]
    return Claim(
        f"{_own_name(data)}: HMC above SGLD, SGD and SWAG",
        f"On {_own_name(data)} HMC has a higher test log-likelihood than SGLD, SGD and SWAG.",
        f"HMC {hmc}, the best of the three {others}",
        "test log-likelihood of HMC here, by split; the bound is the best of the paper's three",
        log_likelihood(HMC_ROW, data),
        above=others,
    )


def _beats_own(data: str) -> Claim:
    return Claim(
        f"{_own_name(data)}: HMC above mean-field and deep ensemble",
        f"On {_own_name(data)} HMC has a higher test log-likelihood than mean-field VI and a deep ensemble.",
        "not reported",
        "test log-likelihood, HMC minus the better of the two here, by split",
        above_own(data),
        above=0.0,
    )


REGRESSION = (*map(_beats_paper, PAPER_UCI), *map(_beats_own, SETS))
