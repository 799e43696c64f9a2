"""Settings of the study of BNN posteriors at each scale; a scale is what differs from the laptop's."""

from dataclasses import dataclass, field, replace
from typing import Literal

from posteriax.data import CORRUPTIONS

SETS = ("uci/boston", "uci/concrete", "uci/energy", "uci/wine", "uci/naval", "uci/power")
FAMILIES = ("Logistic", "NormalMixture", "Laplace", "StudentT")  # beside the Gaussian, which is one of the variances
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


@dataclass(frozen=True)
class TrainingRecipe:
    """How the approximations are trained; chosen on training examples that were held out."""

    batch_size: int = 50  # of all of these
    rate: float = 3e-3  # MAP's Adam, whose rate falls to 0 along a cosine
    epochs: int = 100
    members: int = 10  # of the deep ensemble
    vi_rate: float = 3e-3  # the same for mean-field VI, which starts at a member of the ensemble
    vi_epochs: int = 300
    sgld: float = 1e-5  # step sizes
    sghmc: float = 1e-5
    cyclical: float = 1e-5
    preconditioned: float = 1e-4
    chains: int = 4  # of SG-MCMC
    warmup_epochs: int = 100
    epochs_per_draw: int = 10
    draws: int = 30
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


@dataclass(frozen=True)
class Regression:
    """UCI regression."""

    sets: tuple[str, ...]
    splits: int  # how many of the 20 standard ones
    rows: int  # training rows at most; a random part of larger sets
    hidden: int  # units of the hidden layer
    prior_variance: float  # of every weight
    sampling: Sampling  # as for a target
    recipe: TrainingRecipe
    # of the noise: "predicted" by a second output, as in the paper, or one "learned" number
    scale: Literal["predicted", "learned"] = "predicted"
    start_epochs: int = 0  # of the ensemble at which chains start; 0 is the one that HMC is compared with
    little_noise: tuple[tuple[str, float, int], ...] = ()  # sets with shorter trajectories, other epochs for the start

    def for_set(self, name: str) -> "Regression":
        """The same settings as they are for one of the sets."""
        for data, trajectory, epochs in self.little_noise:
            if data == name:
                return replace(self, sampling=replace(self.sampling, trajectory=trajectory), start_epochs=epochs)
        return self


@dataclass(frozen=True)
class PosteriorsSettings:
    """All experiments."""

    seeds: int  # repetitions by default
    data: tuple[str, ...]  # data sets that must be there
    targets: tuple[Target, ...]  # on which all methods are compared with HMC
    short: Sampling  # HMC for other temperatures and priors, and under shift
    tempered: tuple[Target, ...]  # HMC at these temperatures
    temperatures: tuple[float, ...]
    augmented: Target  # SGHMC with and without augmentation, at these temperatures
    cold: tuple[float, ...]
    varied: Target  # whose prior varies: its variance, or its family at the target's own variance
    variances: tuple[float, ...]
    families: tuple[str, ...]
    mixing: Mixing  # sweeps of trajectory and step size
    shifted: Target  # for noise on the pixels, in units of the inputs, and for these corruptions
    remedied: Sampling  # HMC with the EmpCov prior, which has other scales
    noises: tuple[float, ...]
    shifts: tuple[str, ...]
    corruptions: tuple[str, ...]  # of images
    severities: tuple[int, ...]
    corrupted_test: int  # how many test images
    regression: Regression  # UCI


MLP = Target(
    "Fashion-MNIST, MLP",
    "fashion_mnist",
    "MLP",
    (16,),
    train=300,
    test=500,
    prior_variance=1 / 10,
    centre=0.286,
    spread=0.32,
    sampling=Sampling(chains=4, warmup=20, draws=50, step_size=0.01),
    recipe=TrainingRecipe(
        sgld=1e-4, cyclical=1e-4, preconditioned=3e-4, warmup_epochs=200, epochs_per_draw=20, draws=50
    ),
)
CNN = replace(
    MLP,
    name="Fashion-MNIST, CNN",
    network="CNN",
    widths=(3, 6),
    train=200,
    prior_variance=1 / 5,
    sampling=replace(MLP.sampling, draws=80),
    kinds=SG_MCMC,
)
REVIEWS = Target(
    "IMDB, CNN-LSTM",
    "imdb",
    "small CNN-LSTM",
    (8, 8, 8),
    train=500,
    test=1000,
    prior_variance=1 / 10,
    words=1000,
    length=100,
    sampling=Sampling(chains=4, warmup=30, draws=60, step_size=0.0025),
    start="random",  # with steps of 0.003, a chain from a mode accepted none of 20 proposals
    recipe=TrainingRecipe(
        batch_size=250, epochs=150, vi_epochs=1000, sgld=1e-4, warmup_epochs=2500, epochs_per_draw=50, draws=50
    ),
    kinds=SG_MCMC,
)
LAPTOP = PosteriorsSettings(
    seeds=3,
    data=("fashion_mnist", "mnist", "imdb", *SETS),
    targets=(MLP, CNN, REVIEWS),
    short=Sampling(chains=4, warmup=15, draws=30, step_size=0.01),
    tempered=(MLP,),
    temperatures=(0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    augmented=MLP,
    cold=(0.03, 0.1, 1.0),
    varied=MLP,
    variances=(1 / 40, 1 / 10, 1 / 2),
    families=FAMILIES[:3],
    mixing=Mixing(MLP, step_size=0.01, burn_in=10, draws=40, steps=(1.0, 2.0)),
    shifted=Target("MNIST, MLP", "mnist", "MLP", (16,), train=300, test=500, prior_variance=1 / 10, spread=0.3),
    remedied=Sampling(chains=2, warmup=60, draws=40),
    noises=(0.0, 0.5, 1.0, 2.0, 4.0),
    shifts=("gaussian_noise", "impulse_noise", "zoom_blur", "contrast"),
    corruptions=CORRUPTIONS,
    severities=(3, 5),
    corrupted_test=100,
    regression=Regression(
        SETS,
        splits=5,
        rows=1000,
        hidden=50,
        prior_variance=1.0,
        sampling=Sampling(chains=4, warmup=60, draws=40, trajectory=0.3, leapfrogs=10_000),
        recipe=TrainingRecipe(members=5),
        # predicted noise almost vanishes at some points, and step sizes with it: 17,000 leapfrogs a draw for "boston"
        scale="learned",
        # the noise of "naval" is 0.005 of the target's deviation; after 100 epochs an ensemble is far from it
        little_noise=(("uci/energy", 0.1, 0), ("uci/naval", 0.02, 2000)),
    ),
)

FEW = Sampling(chains=2, warmup=8, draws=8)
BRIEF = TrainingRecipe(
    batch_size=20,
    epochs=2,
    members=2,
    vi_epochs=2,
    chains=2,
    warmup_epochs=1,
    epochs_per_draw=1,
    draws=4,
    mclmc_warmup=20,
    mclmc_thin=2,
)
TINY = Target("Fashion-MNIST, MLP", "fashion_small", "MLP", (4,), 40, 40, 0.1, pixels=7, sampling=FEW, recipe=BRIEF)
# every kind of cell is tried at the paper's scale (`--trial`); compiling all of them would take minutes here
SMOKE = replace(
    LAPTOP,
    seeds=1,
    data=("fashion_small",),
    targets=(TINY,),
    short=FEW,
    tempered=(),
    temperatures=(),
    augmented=TINY,
    cold=(),
    varied=TINY,
    variances=(),
    families=(),
    mixing=Mixing(TINY, step_size=0.05, burn_in=4, draws=8, chains=2, trajectories=(1.0,), steps=(1.0,)),
    shifted=TINY,
    remedied=FEW,
    noises=(),
    shifts=(),
    corruptions=("contrast",),
    severities=(5,),
    corrupted_test=20,
    regression=Regression((), 0, 40, 4, 1.0, FEW, BRIEF),
)

# the paper's own settings: step sizes are for gradients of the summed log joint
CIFAR = Target(
    "CIFAR-10, ResNet-20",
    "cifar10",
    "ResNet-20",
    (),
    train=40_960,
    test=10_000,
    prior_variance=1 / 5,
    pixels=32,
    centre=0.47,
    spread=0.2,
    sampling=Sampling(chains=3, warmup=50, draws=240, step_size=1e-5),
    recipe=TrainingRecipe(
        batch_size=80,
        rate=1e-3,
        epochs=500,
        members=50,
        vi_rate=1e-4,
        sgld=1e-6,
        sghmc=3e-7,
        cyclical=3e-7,
        preconditioned=3e-5,
        chains=5,
        warmup_epochs=1000,
        draws=900,
    ),
)
IMDB = Target(
    "IMDB, CNN-LSTM",
    "imdb",
    "CNN-LSTM",
    (128, 64, 128),
    train=20_000,
    test=25_000,
    prior_variance=1 / 40,
    words=20_000,
    length=100,
    sampling=replace(CIFAR.sampling, draws=400),
    recipe=replace(CIFAR.recipe, vi_epochs=500, sgld=1e-5),
)
MNIST = Target(
    "MNIST, MLP",
    "mnist",
    "MLP",
    (256, 256),
    train=60_000,
    test=10_000,
    prior_variance=1 / 100,
    pixels=28,
    spread=0.3,
    recipe=replace(CIFAR.recipe, epochs=100, members=10),
)
PAPER = replace(
    LAPTOP,
    data=("cifar10", "cifar100", "imdb", "mnist", *SETS),
    targets=(CIFAR, IMDB),
    short=Sampling(chains=2, warmup=50, draws=40, step_size=1e-5),
    tempered=(IMDB,),
    augmented=CIFAR,
    cold=(0.03, 0.1, 0.3, 1.0),
    varied=IMDB,
    variances=(1 / 160, 1 / 80, 1 / 40, 1 / 20, 1.0),
    families=FAMILIES,
    mixing=Mixing(CIFAR, step_size=1e-5, burn_in=50, draws=50, chains=3, steps=(1.0, 5.0, 10.0, 50.0)),
    shifted=MNIST,
    remedied=Sampling(chains=2, warmup=50, draws=40, step_size=1e-5),
    noises=(*LAPTOP.noises, 10.0),
    shifts=CORRUPTIONS,
    severities=(1, 2, 3, 4, 5),
    corrupted_test=2000,
    regression=Regression(SETS, 20, 20_000, 50, 1.0, Sampling(warmup=200, draws=250), TrainingRecipe(members=10)),
)
ONE_LEAPFROG = 1e-6


def one_step(settings: PosteriorsSettings) -> PosteriorsSettings:
    """The same networks, for the fewest transitions and steps, on a few examples."""
    # HMC gives up if all of the warm-up is rejected, which by chance one transition may be
    sampling = Sampling(chains=2, warmup=8, draws=4, step_size=ONE_LEAPFROG, trajectory=ONE_LEAPFROG)
    recipe = replace(BRIEF, batch_size=16, epochs=1, vi_epochs=1, mclmc_warmup=2, mclmc_thin=1)

    def brief(target: Target) -> Target:
        return replace(target, train=16, test=8, sampling=sampling, recipe=recipe)

    return replace(
        settings,
        seeds=1,
        targets=tuple(map(brief, settings.targets)),
        short=sampling,
        tempered=tuple(map(brief, settings.tempered)),
        temperatures=settings.temperatures[:1],
        augmented=brief(settings.augmented),
        cold=settings.cold[:1],
        varied=brief(settings.varied),
        variances=settings.variances[:1],
        families=settings.families[:1],
        mixing=replace(
            settings.mixing,
            target=brief(settings.mixing.target),
            step_size=1.0,  # longer than the trajectory: one leapfrog
            burn_in=8,
            draws=4,
            chains=2,
            trajectories=(ONE_LEAPFROG, 2 * ONE_LEAPFROG),
            steps=(1.0,),
        ),
        shifted=brief(settings.shifted),
        remedied=sampling,
        noises=(0.0,),
        shifts=settings.shifts[:1],
        corruptions=settings.corruptions[:1],
        severities=settings.severities[:1],
        corrupted_test=4,
        regression=replace(
            settings.regression,
            sets=settings.regression.sets[:1],
            splits=1,
            rows=20,
            sampling=sampling,
            recipe=recipe,
            little_noise=(),
        ),
    )
