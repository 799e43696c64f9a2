"""Settings of the study at each scale."""

from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True)
class Sampling:
    """How long HMC runs.

    Args:
        chains, warmup, draws: how many chains, and transitions and draws of each.
        step_size: of the leapfrog at T = 1, with unit masses; if 0, it is adapted in the warm-up, to unit masses too
            if a trajectory is given, else with masses of its own for every weight.
        trajectory: in units of the weights; if 0, it is a quarter of a period: pi / 2 times the prior's scale, times
            sqrt(T), or what the warm-up finds.
        leapfrogs: of a trajectory, at most, if the step size is adapted.
    """

    chains: int = 4
    warmup: int = 100
    draws: int = 100
    step_size: float = 0.0
    trajectory: float = 0.0
    leapfrogs: int = 1000


@dataclass(frozen=True)
class Recipe:
    """How the approximations are trained; chosen on training examples that were held out.

    Args:
        batch_size: of all of these.
        rate, epochs, members: MAP's Adam, whose rate falls to 0 along a cosine, and the deep ensemble.
        vi_rate, vi_epochs: the same for mean-field VI, which starts at a member of the ensemble.
        sgld, sghmc, cyclical, preconditioned: step sizes.
        chains, warmup_epochs, epochs_per_draw, draws: of SG-MCMC.
        mclmc_warmup, mclmc_thin: steps of MCLMC.
    """

    batch_size: int = 50
    rate: float = 3e-3
    epochs: int = 100
    members: int = 10
    vi_rate: float = 3e-3
    vi_epochs: int = 300
    sgld: float = 1e-5
    sghmc: float = 1e-5
    cyclical: float = 1e-5
    preconditioned: float = 1e-4
    chains: int = 4
    warmup_epochs: int = 100
    epochs_per_draw: int = 10
    draws: int = 30
    mclmc_warmup: int = 1000
    mclmc_thin: int = 20


@dataclass(frozen=True)
class Target:
    """What all methods infer: a network, its data and its prior.

    Args:
        name: on the page.
        data: name of the data set.
        network: "MLP", "CNN", "small CNN-LSTM", "CNN-LSTM" or "ResNet-20".
        widths: hidden units, channels, or features, channels and units.
        train, test: how many examples; every seed takes its own.
        prior_variance: of every weight.
        pixels: images are averaged down to so many pixels a side.
        centre, spread: subtracted from pixels in [0, 1], and divided by.
        words, length: size of the vocabulary, and words of a review.
        sampling: of the reference.
        start: of its chains: at members of the deep ensemble, or at random weights.
        recipe: of the approximations.
        kinds: which kinds of SG-MCMC, and MCLMC, are run.
    """

    name: str
    data: str
    network: str
    widths: tuple[int, ...]
    train: int
    test: int
    prior_variance: float
    pixels: int = 14
    centre: float = 0.0
    spread: float = 1.0
    words: int = 0
    length: int = 0
    sampling: Sampling = field(default_factory=Sampling)
    start: Literal["ensemble", "random"] = "ensemble"
    recipe: Recipe = field(default_factory=Recipe)
    kinds: tuple[str, ...] = ("SGLD", "SGHMC", "cyclical SGHMC", "preconditioned SGHMC", "MCLMC")


@dataclass(frozen=True)
class Mixing:
    """HMC as the paper has it: unit masses, a fixed step size, trajectories of a fixed length.

    Args:
        target: what is sampled.
        step_size: Delta.
        burn_in, draws, chains: transitions that are discarded, and draws after them, of each chain.
        trajectories: in units of pi / 2 times the prior's scale.
        steps: in units of `step_size`, at the whole trajectory.
    """

    target: Target
    step_size: float
    burn_in: int = 10
    draws: int = 50
    chains: int = 4
    trajectories: tuple[float, ...] = (0.25, 0.5, 1.0, 1.5)
    steps: tuple[float, ...] = (1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Regression:
    """UCI regression.

    Args:
        sets: names of the data sets.
        splits: how many of the 20 standard ones.
        rows: training rows at most; a random part of larger sets.
        hidden: units of the hidden layer.
        prior_variance: of every weight.
        sampling, recipe: as for a target.
        scale: of the noise: "predicted" by a second output, as in the paper, or one "learned" number.
        start_epochs: of the ensemble at which chains start; 0 is the one that HMC is compared with.
        little_noise: sets with shorter trajectories, and with another number of epochs for the start.
    """

    sets: tuple[str, ...]
    splits: int
    rows: int
    hidden: int
    prior_variance: float
    sampling: Sampling
    recipe: Recipe
    scale: Literal["predicted", "learned"] = "predicted"
    start_epochs: int = 0
    little_noise: tuple[tuple[str, float, int], ...] = ()

    def of_set(self, name: str) -> "Regression":
        """The same settings as they are for one of the sets."""
        for own, trajectory, epochs in self.little_noise:
            if own == name:
                return replace(self, sampling=replace(self.sampling, trajectory=trajectory), start_epochs=epochs)
        return self


@dataclass(frozen=True)
class Settings:
    """All experiments.

    Args:
        seeds, data: repetitions by default, and the data sets that must be there.
        targets: on which all methods are compared with HMC.
        short: HMC for other temperatures and priors, and under shift.
        tempered, temperatures: targets and temperatures.
        augmented, cold: SGHMC with and without augmentation, and its temperatures.
        varied, variances, families: the target whose prior varies; its variances, and families of the usual variance.
        mixing: sweeps of trajectory and step size.
        shifted, noises, shifts: the target for noise on the pixels, in units of the inputs, and for these corruptions.
        remedied: HMC with the EmpCov prior, which has other scales.
        corruptions, severities, corrupted_test: of images; how many test images.
        regression: UCI.
    """

    seeds: int
    data: tuple[str, ...]
    targets: tuple[Target, ...]
    short: Sampling
    tempered: tuple[Target, ...]
    temperatures: tuple[float, ...]
    augmented: Target
    cold: tuple[float, ...]
    varied: Target
    variances: tuple[float, ...]
    families: tuple[str, ...]
    mixing: Mixing
    shifted: Target
    remedied: Sampling
    noises: tuple[float, ...]
    shifts: tuple[str, ...]
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    corrupted_test: int
    regression: Regression
