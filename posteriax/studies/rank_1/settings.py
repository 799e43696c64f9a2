"""Settings of the study of rank-1 networks at each scale, and the methods that it compares, as the tables name them.

    deep ensemble                    K networks of the same size; one of them is the deterministic baseline
    deep ensemble, equal parameters  K smaller networks with as many parameters together as the rank-1 network
    BatchEnsemble                    rank-1 factors without noise
    MC dropout, mean-field           one network with random weights
    Bayesian embeddings              an LSTM with random weights on its inputs alone

All others are rank-1 mixtures.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from posteriax.data import CORRUPTIONS
from posteriax.studies.scales import read_scales

DETERMINISTIC = "deterministic"  # no run of its own: one member of the deep ensemble
DEEP, EQUAL = "deep ensemble", "deep ensemble, equal parameters"
BATCH_ENSEMBLE, DROPOUT, MEAN_FIELD = "BatchEnsemble", "MC dropout", "mean-field"
GAUSSIAN, CAUCHY = "rank-1 Gaussian", "rank-1 Cauchy"
INPUT, OUTPUT = "factors on inputs", "factors on outputs"
MIXTURE = "log-mixture likelihood"
LOG_NORMAL, HALF_CAUCHY = "log-normal factors", "half-Cauchy factors"
ADDITIVE = "additive factors"
EMBEDDINGS = "Bayesian embeddings"
TABLE = (DEEP, EQUAL, BATCH_ENSEMBLE, DROPOUT, MEAN_FIELD, GAUSSIAN, CAUCHY)
ABLATIONS = (INPUT, OUTPUT, MIXTURE, LOG_NORMAL, HALF_CAUCHY, ADDITIVE)
MORTALITY = (DEEP, BATCH_ENSEMBLE, MEAN_FIELD, EMBEDDINGS, GAUSSIAN, CAUCHY)


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
    augment: bool = False  # random crops and flips of the training images
    own_images: bool = False  # whether every seed takes training images of its own, if not all of them
    trials: tuple[
        float, ...
    ] = ()  # factors on all prior scales, of which every method takes the best on held-out images
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
    tables: tuple[Images, ...]
    mortality: Mortality
    ablated: str = ""  # the data of the table whose settings the ablations use; the last one if empty
    members: int = 4  # K, of mixtures and ensembles
    variants: tuple[str, ...] = ABLATIONS  # of the rank-1 network
    sizes: tuple[int, ...] = (1, 2, 8, 16)  # other sizes of mixtures
    draws: int = 4  # of each component, for predictions
    gaussian_draws: int = 4  # the same with Gaussian factors
    examples_per_draw: int = 0  # test examples that share a draw of the factors; 0: all of them
    other_side: Literal["none", "point"] = "none"  # what the other side has if factors are on one side
    fast_rate: float = 1.0  # learning rate of BatchEnsemble's factors over that of the other parameters, with SGD
    start: str = "normal"  # initial means of the factors, see `q.Rank1`
    start_value: float = 0.5
    factor_scale: float = 0.1  # of the factors' prior, N(1, scale^2), also for their logs
    cauchy_scale: float = 0.1  # of the factors' prior, Cauchy(1, scale)
    dropout: float = 0.1  # the rate of MC dropout
    statistics: int = 512  # training images for the batch statistics of a draw
    checkpoints: int = 8  # readings of members in the last half of a run; 0 leaves these runs out
    prior_draws: int = 1_000_000  # of weights under induced priors; 0 leaves them out
    theorem_images: int = 20  # test images for theorem 1; 0 leaves it out
    theorem_draws: int = 4000


def ablated_table(settings: Rank1Settings) -> Images:
    """The table whose data and network the ablations have."""
    return next((table for table in settings.tables if table.data == settings.ablated), settings.tables[-1])


SCALES = read_scales(Path(__file__).with_name("scales.toml"), Rank1Settings)
