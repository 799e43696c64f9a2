"""The study's three scales."""

from dataclasses import replace

from posteriax.data import CORRUPTIONS
from posteriax.studies.bnn_posteriors.settings import Mixing, Recipe, Regression, Sampling, Settings, Target

SETS = ("uci/boston", "uci/concrete", "uci/energy", "uci/wine", "uci/naval", "uci/power")
TEMPERATURES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
COLD = (0.03, 0.1, 0.3, 1.0)
FAMILIES = ("Logistic", "NormalMixture", "Laplace", "StudentT")  # beside the Gaussian, which is one of the variances
NOISES = (0.0, 0.5, 1.0, 2.0, 4.0)
SHIFTS = ("gaussian_noise", "impulse_noise", "zoom_blur", "contrast")
FEW = Sampling(chains=2, warmup=8, draws=8)
BRIEF = Recipe(
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
SMOKE = Settings(
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

SAMPLER = Recipe(
    sgld=1e-4,
    sghmc=1e-5,
    cyclical=1e-4,
    preconditioned=3e-4,
    warmup_epochs=200,
    epochs_per_draw=20,
    draws=50,
)
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
    recipe=SAMPLER,
)
CNN = replace(
    MLP,
    name="Fashion-MNIST, CNN",
    network="CNN",
    widths=(3, 6),
    train=200,
    prior_variance=1 / 5,
    sampling=Sampling(chains=4, warmup=20, draws=80, step_size=0.01),
    kinds=("SGLD", "SGHMC", "cyclical SGHMC", "preconditioned SGHMC"),
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
    recipe=Recipe(
        batch_size=250,
        epochs=150,
        vi_epochs=1000,
        sgld=1e-4,
        sghmc=1e-5,
        cyclical=1e-5,
        preconditioned=1e-4,
        warmup_epochs=2500,
        epochs_per_draw=50,
        draws=50,
    ),
    kinds=CNN.kinds,
)
DIGITS = Target("MNIST, MLP", "mnist", "MLP", (16,), train=300, test=500, prior_variance=1 / 10, spread=0.3)
SHORT = Sampling(chains=4, warmup=15, draws=30, step_size=0.01)
LAPTOP = Settings(
    seeds=3,
    data=("fashion_mnist", "mnist", "imdb", *SETS),
    targets=(MLP, CNN, REVIEWS),
    short=SHORT,
    tempered=(MLP,),
    temperatures=TEMPERATURES,
    augmented=MLP,
    cold=(0.03, 0.1, 1.0),
    varied=MLP,
    variances=(1 / 40, 1 / 10, 1 / 2),
    families=FAMILIES[:3],
    mixing=Mixing(MLP, step_size=0.01, burn_in=10, draws=40, steps=(1.0, 2.0)),
    shifted=DIGITS,
    remedied=Sampling(chains=2, warmup=60, draws=40),
    noises=NOISES,
    shifts=SHIFTS,
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
        recipe=Recipe(members=5),
        # predicted noise almost vanishes at some points, and step sizes with it: 17,000 leapfrogs a draw for "boston"
        scale="learned",
        # the noise of "naval" is 0.005 of the target's deviation; after 100 epochs an ensemble is far from it
        little_noise=(("uci/energy", 0.1, 0), ("uci/naval", 0.02, 2000)),
    ),
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
    recipe=Recipe(
        batch_size=80,
        rate=1e-3,
        epochs=500,
        members=50,
        vi_rate=1e-4,
        vi_epochs=300,
        sgld=1e-6,
        sghmc=3e-7,
        cyclical=3e-7,
        preconditioned=3e-5,
        chains=5,
        warmup_epochs=1000,
        epochs_per_draw=10,
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
    sampling=Sampling(chains=3, warmup=50, draws=400, step_size=1e-5),
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
PAPER = Settings(
    seeds=3,
    data=("cifar10", "cifar100", "imdb", "mnist", *SETS),
    targets=(CIFAR, IMDB),
    short=Sampling(chains=2, warmup=50, draws=40, step_size=1e-5),
    tempered=(IMDB,),
    temperatures=TEMPERATURES,
    augmented=CIFAR,
    cold=COLD,
    varied=IMDB,
    variances=(1 / 160, 1 / 80, 1 / 40, 1 / 20, 1.0),
    families=FAMILIES,
    mixing=Mixing(CIFAR, step_size=1e-5, burn_in=50, draws=50, chains=3, steps=(1.0, 5.0, 10.0, 50.0)),
    shifted=MNIST,
    remedied=Sampling(chains=2, warmup=50, draws=40, step_size=1e-5),
    noises=(0.0, 0.5, 1.0, 2.0, 4.0, 10.0),
    shifts=CORRUPTIONS,
    corruptions=CORRUPTIONS,
    severities=(1, 2, 3, 4, 5),
    corrupted_test=2000,
    regression=Regression(SETS, 20, 20_000, 50, 1.0, Sampling(warmup=200, draws=250), Recipe(members=10)),
)
ONE_LEAPFROG = 1e-6


def one_step(settings: Settings) -> Settings:
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
