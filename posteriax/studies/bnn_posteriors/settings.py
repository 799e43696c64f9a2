"""Settings of the study of BNN posteriors; ``scales.toml`` has their values at each scale."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from posteriax.data import CORRUPTIONS
from posteriax.studies.scales import read_scales

SETS = ("uci/boston", "uci/concrete", "uci/energy", "uci/yacht", "uci/wine", "uci/naval", "uci/power")
SG_MCMC = ("SGLD", "SGHMC", "cyclical SGHMC", "preconditioned SGHMC")


@dataclass(frozen=True)
class Sampling:
    """How long HMC runs."""

    chains: int = 4
    warmup: int = 100  # transitions of each chain
    draws: int = 100
    # of the leapfrog at T = 1, with unit masses; if 0, it is adapted in the warm-up, to unit masses too if a trajectory
    # is given, else with masses of its own for every weight
    step_size: float = 0.0
    # in units of the weights; if 0, it is a quarter of a period: pi / 2 times the prior's scale, times sqrt(T), or what
    # the warm-up finds
    trajectory: float = 0.0
    leapfrogs: int = 1000  # of a trajectory, at most, if the step size is adapted
    dense: bool = False  # masses that know correlations, learned in the warm-up, if neither of the two is given


@dataclass(frozen=True)
class TrainingRecipe:
    """How the approximations are trained; chosen on training examples that were held out."""

    batch_size: int = 50  # of all of these
    rate: float = 3e-3  # MAP's Adam, whose rate falls to 0 along a cosine; of SGD if there is a momentum
    momentum: float = 0.0  # of SGD in place of Adam
    weight_decay: float = 0.0  # the precision of MAP's prior; 0 for the prior that all others have
    epochs: int = 100
    members: int = 10  # of the deep ensemble
    vi_rate: float = 3e-3  # the same for mean-field VI, which starts at a member of the ensemble
    vi_epochs: int = 300
    vi_draws: int = 100  # for predictions
    sgld: float = 1e-5  # step sizes
    sghmc: float = 1e-5
    cyclical: float = 1e-5
    preconditioned: float = 1e-4
    chains: int = 4  # of SG-MCMC
    warmup_epochs: int = 100
    epochs_per_draw: int = 10
    cycle_epochs: int = 0  # of cyclical SGHMC, with a draw at the end of each cycle; 0 for `epochs_per_draw`
    draws: int = 30  # of a chain; with longer cycles, fewer in as many epochs
    mclmc_warmup: int = 1000  # steps of MCLMC
    mclmc_thin: int = 20


@dataclass(frozen=True)
class Target:
    """What all methods infer: a network, its data and its prior."""

    name: str  # on the page
    data: str
    network: str  # "MLP", "CNN", "small CNN-LSTM", "CNN-LSTM" or "ResNet-20"
    widths: tuple[int, ...]  # hidden units, channels, or features, channels and units
    train: int  # examples; every seed takes its own
    test: int
    prior_variance: float  # of every weight
    pixels: int = 14  # images are averaged down to so many pixels a side
    centre: float = 0.0  # subtracted from pixels in [0, 1]
    centres: tuple[float, ...] = ()  # the same by channel
    spread: float = 1.0  # and divided by
    words: int = 0  # size of the vocabulary
    length: int = 0  # words of a review
    sampling: Sampling = field(default_factory=Sampling)  # of the reference
    start: Literal["ensemble", "random"] = "ensemble"  # of its chains: at members of the deep ensemble, or anywhere
    recipe: TrainingRecipe = field(default_factory=TrainingRecipe)  # of the approximations
    kinds: tuple[str, ...] = (*SG_MCMC, "MCLMC")  # which of these are run


@dataclass(frozen=True)
class Mixing:
    """HMC as the paper has it: unit masses, a fixed step size, trajectories of a fixed length."""

    target: Target  # what is sampled
    step_size: float  # Delta
    burn_in: int = 10  # transitions that are discarded
    draws: int = 50  # after them, of each chain
    chains: int = 4
    trajectories: tuple[float, ...] = (0.25, 0.5, 1.0, 1.5)  # in units of pi / 2 times the prior's scale
    steps: tuple[float, ...] = (1.0, 2.0, 4.0)  # in units of `step_size`, at the trajectory 1


@dataclass(frozen=True, kw_only=True)
class Regression:
    """UCI regression."""

    sets: tuple[str, ...] = SETS
    splits: int  # how many of the 20 standard ones
    rows: int  # training rows at most; a random part of larger sets
    hidden: int  # units of the hidden layer
    prior_variance: float  # of every weight
    sampling: Sampling  # as for a target
    recipe: TrainingRecipe
    # of the noise: "predicted" by a second output, as in the paper, or one "learned" number
    scale: Literal["predicted", "learned"] = "predicted"
    little_noise: tuple[tuple[str, float, int], ...] = ()  # sets with other trajectories, and epochs of all ensembles

    def for_set(self, name: str) -> "Regression":
        """The same settings as they are for one of the sets."""
        for data, trajectory, epochs in self.little_noise:
            if data == name:
                recipe = replace(self.recipe, epochs=epochs or self.recipe.epochs)
                return replace(self, sampling=replace(self.sampling, trajectory=trajectory), recipe=recipe)
        return self


@dataclass(frozen=True, kw_only=True)
class PosteriorsSettings:
    """All experiments."""

    seeds: int  # repetitions by default
    review_seeds: int = 1000  # of targets with reviews, at most
    data: tuple[str, ...]  # data sets that must be there
    targets: tuple[Target, ...]  # on which all methods are compared with HMC
    short: Sampling  # HMC for other temperatures and priors, and under shift
    tempered: tuple[Target, ...]  # HMC at these temperatures
    temperatures: tuple[float, ...]
    augmented: Target  # SGHMC with and without augmentation, at these temperatures
    cold: tuple[float, ...]
    varied: Target  # whose prior varies: its variance, or its family at the target's own variance
    variances: tuple[float, ...]
    families: tuple[str, ...]  # beside the Gaussian, which is one of the variances
    # HMC at all of these variances and temperatures of `varied`; the variance is chosen on held-out training examples
    grid_variances: tuple[float, ...] = ()
    grid_temperatures: tuple[float, ...] = ()
    architectures: tuple[Target, ...] = ()  # networks on the same images, with one prior
    mixing: Mixing  # sweeps of trajectory and step size
    also_shifted: tuple[Target, ...] = ()  # the same as `shifted` for other networks
    shifted: Target  # for noise on the pixels, in units of the inputs, and for these corruptions
    remedied: Sampling  # HMC with the EmpCov prior, which has other scales
    noises: tuple[float, ...]
    shifts: tuple[str, ...]
    corruptions: tuple[str, ...] = CORRUPTIONS  # of images
    severities: tuple[int, ...]
    corrupted_test: int  # how many test images
    regression: Regression  # UCI


SCALES = read_scales(Path(__file__).with_name("scales.toml"), PosteriorsSettings)
