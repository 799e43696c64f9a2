"""The methods that the study compares, by the name that the tables have.

    deep ensemble                    K networks of the same size; one of them is the deterministic baseline
    deep ensemble, equal parameters  K smaller networks with as many parameters together as the rank-1 network
    BatchEnsemble                    rank-1 factors without noise
    MC dropout, mean-field           one network with random weights

All others are rank-1 mixtures.

Settings of the study at each scale.
"""

from dataclasses import dataclass, replace
from typing import Any

from posteriax.data.corruptions.suite import CORRUPTIONS

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
    """One table of image classification: data, network and training.

    Args:
        data: name of the data set.
        network: "MLP" or "WRN".
        examples, tests: training and test images, from the first on; 0 for all.
        corrupted: test images for each kind and severity of corruption.
        widths: hidden units of the MLP, or channels of the three stages of the Wide ResNet, of the rank-1 network.
        matched: whether the networks of other methods are widened to the same number of parameters.
        depth, widen: of the Wide ResNet.
        pool: images are averaged over squares of so many pixels.
        batch_size: new images per step; with K components the network sees K times as many rows.
        steps: of every method.
        prior_scale: of the weights of deep ensembles and with dropout, which is their weight decay.
        batch_scale, rank_1_scale: of the shared weights of BatchEnsemble and of rank-1 mixtures.
        mean_field_scale: of all weights in mean-field VI.
        annealing: the part of the run over which the KL's weight grows from 0 to 1.
        methods: rows of the table.
        kinds, severities: of corruptions.
        rate: of SGD with Nesterov momentum, per 128 images, with the paper's warm-up and decays; 0 for posteriax's own
            optimisers.
    """

    data: str
    network: str
    examples: int
    tests: int
    corrupted: int
    widths: tuple[int, ...]
    batch_size: int
    steps: int
    matched: bool = True
    depth: int = 10
    widen: int = 1
    pool: int = 1
    prior_scale: float = 1.0
    batch_scale: float = 1.0
    rank_1_scale: float = 1.0
    mean_field_scale: float = 0.1
    annealing: float = 0.8
    methods: tuple[str, ...] = TABLE
    kinds: tuple[str, ...] = CORRUPTIONS
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    rate: float = 0.0


@dataclass(frozen=True)
class Mortality:
    """The task of predicting death in hospital.

    Args:
        data: name of the data set.
        examples, tests: stays for training and testing; 0 for all.
        units: of the LSTM, for the rank-1 network.
        hours: how many of the last hours are used.
        batch_size, steps, prior_scale, batch_scale, rank_1_scale, mean_field_scale, annealing: as for images.
        methods: rows of the table.
        removed: the share of the measurements that is removed to see what missing values do.
    """

    data: str
    examples: int
    tests: int
    units: int
    batch_size: int
    steps: int
    hours: int = 48
    prior_scale: float = 1.0
    batch_scale: float = 1.0
    rank_1_scale: float = 1.0
    mean_field_scale: float = 0.1
    annealing: float = 0.8
    methods: tuple[str, ...] = MORTALITY
    removed: float = 0.5


@dataclass(frozen=True)
class Rank1Settings:
    """Settings of a scale.

    Args:
        seeds: repetitions by default.
        data: data sets that must be there.
        tables: image data; ablations use the last.
        mortality: clinical records.
        members: K, of mixtures and ensembles.
        variants: of the rank-1 network.
        sizes: other sizes of mixtures.
        draws: of each component, for predictions.
        start, start_value: initial means of the factors, see `q.Rank1`.
        factor_scale, cauchy_scale: of the factors' prior, N(1, scale^2), also for their logs, and Cauchy(1, scale).
        dropout: the rate of MC dropout.
        statistics: training images for the batch statistics of a draw.
    """

    seeds: int
    data: tuple[str, ...]
    tables: tuple[Images, ...]
    mortality: Mortality
    members: int = 4
    variants: tuple[str, ...] = ABLATIONS
    sizes: tuple[int, ...] = (1, 2, 8, 16)
    draws: int = 4
    start: str = "normal"
    start_value: float = 0.5
    factor_scale: float = 0.1
    cauchy_scale: float = 0.1
    dropout: float = 0.1
    statistics: int = 512


_FEW: dict[str, Any] = {"kinds": ("contrast",), "severities": (1, 5)}
SMOKE = Rank1Settings(
    seeds=1,
    data=("fashion_small",),
    tables=(
        Images("made-up/cifar10", "MLP", 32, 16, 8, (4,), batch_size=8, steps=4, pool=8, methods=(DEEP,), **_FEW),
        Images("fashion_small", "MLP", 64, 16, 8, (4,), 8, 4, pool=4, methods=(DEEP, GAUSSIAN), **_FEW),
    ),
    mortality=Mortality("made-up/physionet2012", 32, 16, 3, batch_size=8, steps=4, hours=2, methods=(DEEP,)),
    members=2,
    variants=(),
    sizes=(),
    draws=1,
    statistics=16,
)
_WIDE: dict[str, Any] = {"prior_scale": 0.3, "batch_scale": 0.3, "rank_1_scale": 0.3, "mean_field_scale": 0.4}
_MLP: dict[str, Any] = {"prior_scale": 0.2, "batch_scale": 0.2, "rank_1_scale": 0.2, "mean_field_scale": 0.4}
LAPTOP = Rank1Settings(
    seeds=3,
    data=("cifar10", "fashion_mnist", "physionet2012"),
    tables=(
        Images("cifar10", "WRN", 2000, 1000, 40, (8, 16, 32), batch_size=32, steps=400, pool=2, **_WIDE),
        Images("fashion_mnist", "MLP", 3000, 2000, 40, (100, 100), batch_size=64, steps=600, **_MLP),
    ),
    mortality=Mortality("physionet2012", 0, 0, units=19, batch_size=64, steps=300, mean_field_scale=0.4),
    start_value=0.1,
    factor_scale=0.3,
    dropout=0.03,
)
# The paper's own settings for Wide ResNets, as its authors' programs have them: 250 epochs of 128 images, sign starts,
# KL annealing over 200 epochs, and weight decay of 2e-4 (deterministic), 3e-4 (BatchEnsemble) and 1e-4 (rank-1) times
# the sum of squares, which for 50,000 images is a prior of these scales. Fashion-MNIST and the records of PhysioNet are
# not in the paper: larger networks and longer runs than above.
PAPER = Rank1Settings(
    seeds=10,
    data=("cifar10", "fashion_mnist", "physionet2012"),
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
    sizes=(1, 2, 8, 16),
    start="sign",
    start_value=0.5,
    statistics=5000,
)


def one_step(settings: Rank1Settings) -> Rank1Settings:
    """The same networks, for one step each, and measurements on a few examples."""
    tables = tuple(replace(one, steps=1, batch_size=4, examples=8, tests=8, corrupted=1) for one in settings.tables)
    mortality = replace(settings.mortality, steps=1, batch_size=4, examples=16, tests=16)
    return replace(settings, tables=tables, mortality=mortality, draws=1, statistics=4)
