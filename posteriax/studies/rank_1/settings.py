"""Settings of the study of rank-1 networks at each scale, and the methods that it compares, as the tables name them.

    deep ensemble                    K networks of the same size; one of them is the deterministic baseline
    deep ensemble, equal parameters  K smaller networks with as many parameters together as the rank-1 network
    BatchEnsemble                    rank-1 factors without noise
    MC dropout, mean-field           one network with random weights

All others are rank-1 mixtures.
"""

from dataclasses import dataclass, replace

from posteriax.data import CORRUPTIONS

DETERMINISTIC = "deterministic"  # no run of its own: one member of the deep ensemble
DEEP, EQUAL = "deep ensemble", "deep ensemble, equal parameters"
BATCH_ENSEMBLE, DROPOUT, MEAN_FIELD = "BatchEnsemble", "MC dropout", "mean-field"
GAUSSIAN, CAUCHY = "rank-1 Gaussian", "rank-1 Cauchy"
INPUT, OUTPUT = "factors on inputs", "factors on outputs"
MIXTURE = "log-mixture likelihood"
LOG_NORMAL, HALF_CAUCHY = "log-normal factors", "half-Cauchy factors"
TABLE = (DEEP, EQUAL, BATCH_ENSEMBLE, DROPOUT, MEAN_FIELD, GAUSSIAN, CAUCHY)
ABLATIONS = (INPUT, OUTPUT, MIXTURE, LOG_NORMAL, HALF_CAUCHY)
MORTALITY = (DEEP, BATCH_ENSEMBLE, MEAN_FIELD, GAUSSIAN, CAUCHY)


def size_name(components: int) -> str:
    """The name of the mixture of another size.

    >>> size_name(8)
    'K = 8'
    """
    return f"K = {components}"


@dataclass(frozen=True)
class Images:
    """One table of image classification: data, network and training."""

    data: str
    network: str  # "MLP" or "WRN"
    examples: int  # training images, from the first on; 0 for all
    tests: int  # test images, in the same way
    corrupted: int  # test images for each kind and severity of corruption
    widths: tuple[int, ...]  # hidden units, or channels of the three stages of a Wide ResNet, of the rank-1 network
    batch_size: int  # new images per step; with K components the network sees K times as many rows
    steps: int  # of every method
    matched: bool = True  # whether the networks of other methods are widened to the same number of parameters
    depth: int = 10  # of the Wide ResNet
    widen: int = 1
    pool: int = 1  # images are averaged over squares of so many pixels
    prior_scale: float = 1.0  # of the weights of deep ensembles and with dropout, which is their weight decay
    batch_scale: float = 1.0  # of the shared weights of BatchEnsemble
    rank_1_scale: float = 1.0  # of the shared weights of rank-1 mixtures
    mean_field_scale: float = 0.1  # of all weights in mean-field VI
    annealing: float = 0.8  # the part of the run over which the KL's weight grows from 0 to 1
    methods: tuple[str, ...] = TABLE  # rows of the table
    kinds: tuple[str, ...] = CORRUPTIONS
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    # of SGD with Nesterov momentum, per 128 images, with the paper's warm-up and decays; 0 for posteriax's optimisers
    rate: float = 0.0


@dataclass(frozen=True)
class Mortality:
    """The task of predicting death in hospital; what is not explained is as for images."""

    data: str
    examples: int  # stays for training; 0 for all
    tests: int
    units: int  # of the LSTM, for the rank-1 network
    batch_size: int
    steps: int
    hours: int = 48  # how many of the last hours are used
    prior_scale: float = 1.0
    batch_scale: float = 1.0
    rank_1_scale: float = 1.0
    mean_field_scale: float = 0.1
    annealing: float = 0.8
    methods: tuple[str, ...] = MORTALITY
    removed: float = 0.5  # the share of the measurements that is removed to see what missing values do


@dataclass(frozen=True)
class Rank1Settings:
    """Settings of a scale."""

    seeds: int  # repetitions by default
    data: tuple[str, ...]  # data sets that must be there
    tables: tuple[Images, ...]  # ablations use the last
    mortality: Mortality
    members: int = 4  # K, of mixtures and ensembles
    variants: tuple[str, ...] = ABLATIONS  # of the rank-1 network
    sizes: tuple[int, ...] = (1, 2, 8, 16)  # other sizes of mixtures
    draws: int = 4  # of each component, for predictions
    start: str = "normal"  # initial means of the factors, see `q.Rank1`
    start_value: float = 0.5
    factor_scale: float = 0.1  # of the factors' prior, N(1, scale^2), also for their logs
    cauchy_scale: float = 0.1  # of the factors' prior, Cauchy(1, scale)
    dropout: float = 0.1  # the rate of MC dropout
    statistics: int = 512  # training images for the batch statistics of a draw


CIFAR = Images(
    *("cifar10", "WRN", 2000, 1000, 40),
    widths=(8, 16, 32),
    batch_size=32,
    steps=400,
    pool=2,
    prior_scale=0.3,
    batch_scale=0.3,
    rank_1_scale=0.3,
    mean_field_scale=0.4,
)
FASHION = Images(
    *("fashion_mnist", "MLP", 3000, 2000, 40),
    widths=(100, 100),
    batch_size=64,
    steps=600,
    prior_scale=0.2,
    batch_scale=0.2,
    rank_1_scale=0.2,
    mean_field_scale=0.4,
)
LAPTOP = Rank1Settings(
    seeds=3,
    data=("cifar10", "fashion_mnist", "physionet2012"),
    tables=(CIFAR, FASHION),
    mortality=Mortality("physionet2012", 0, 0, units=19, batch_size=64, steps=300, mean_field_scale=0.4),
    start_value=0.1,
    factor_scale=0.3,
    dropout=0.03,
)
_TINY = Images(
    *("fashion_small", "MLP", 64, 16, 8, (4,)),
    batch_size=8,
    steps=4,
    pool=4,
    methods=(DEEP, GAUSSIAN),
    kinds=("contrast",),
    severities=(1, 5),
)
SMOKE = Rank1Settings(
    seeds=1,
    data=("fashion_small",),
    tables=(replace(_TINY, data="made-up/cifar10", examples=32, pool=8, methods=(DEEP,)), _TINY),
    mortality=Mortality("made-up/physionet2012", 32, 16, 3, batch_size=8, steps=4, hours=2, methods=(DEEP,)),
    members=2,
    variants=(),
    sizes=(),
    draws=1,
    statistics=16,
)
# The paper's own settings for Wide ResNets, as its authors' programs have them: 250 epochs of 128 images, sign starts,
# KL annealing over 200 epochs, and weight decay of 2e-4 (deterministic), 3e-4 (BatchEnsemble) and 1e-4 (rank-1) times
# the sum of squares, which for 50,000 images is a prior of these scales. Fashion-MNIST and the records of PhysioNet are
# not in the paper: larger networks and longer runs than above.
PAPER = Rank1Settings(
    seeds=10,
    data=LAPTOP.data,
    tables=(
        Images(
            *("cifar10", "WRN", 0, 0, 2000),
            widths=(16, 32, 64),
            batch_size=128,
            steps=97_750,
            matched=False,
            depth=28,
            widen=10,
            prior_scale=0.224,
            batch_scale=0.183,
            rank_1_scale=0.316,
            rate=0.1,
        ),
        Images("fashion_mnist", "MLP", 0, 0, 2000, widths=(400, 400), batch_size=128, steps=47_000, matched=False),
    ),
    mortality=Mortality("physionet2012", 0, 0, units=128, batch_size=128, steps=3000),
    start="sign",
    statistics=5000,
)


def one_step(settings: Rank1Settings) -> Rank1Settings:
    """The same networks, for one step each, and measurements on a few examples."""
    tables = tuple(replace(plan, steps=1, batch_size=4, examples=8, tests=8, corrupted=1) for plan in settings.tables)
    mortality = replace(settings.mortality, steps=1, batch_size=4, examples=16, tests=16)
    return replace(settings, tables=tables, mortality=mortality, draws=1, statistics=4)
