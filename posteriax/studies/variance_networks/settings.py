"""Settings of the study of variance networks; the defaults are those of a laptop, ``scales.toml`` has the others."""

from dataclasses import dataclass
from pathlib import Path

from posteriax.studies.scales import read_scales


@dataclass(frozen=True)
class VarianceSettings:
    """What is trained, on how much, and how it is measured."""

    data: tuple[str, ...]  # the first is the one for LeNet-5
    seeds: int  # repetitions by default
    # LeNet-5 in the accuracy table
    channels: tuple[int, int] = (20, 50)
    hidden: int = 500
    variance_layers: str = "dense/weight"  # pattern of the weights that share an alpha per layer
    table: tuple[str, ...] = ("dropout", "zero-mean")  # rows; "layer" has an alpha for each of `variance_layers`
    batch_norm: bool = False  # behind the first dense layer, in all experiments but the curvature's
    own_images: bool = False  # whether every seed takes training images of its own, if not all of them
    examples: int = 0  # 0 are all
    epochs: int = 9
    dropout_epochs: int = 2
    batch_size: int = 64
    # the same in the other experiments
    subset: int = 6000
    subset_epochs: int = 5
    subset_batch: int = 64
    attack_epochs: int = 0  # of the networks that are attacked; 0 for `subset_epochs`
    subset_channels: tuple[int, int] = (20, 50)
    subset_hidden: int = 500
    # Adam, whose rates fall to 0 linearly
    rate: float = 2e-3
    momentum: float = 0.9
    log_alpha: float = -5.0  # where it starts
    held: float = 0.2  # share of the run for which log alpha is held there
    noise_rate: float = 1.0  # of log alpha after that
    # the same for one alpha, or one variance, per weight: their gradients are those of single weights, and larger
    # steps would carry all of them beyond any use
    free_rate: float = 0.1
    memory: float = 0.9  # b2 for log alpha and log scales
    scale_rate: float = 2e-2  # of the log scales of a zero-mean layer
    # measurements
    test: int = 0  # test examples of the accuracy table; 0 are all
    subset_test: int = 1000  # and of the other experiments
    draws: int = 30  # of an ensemble
    watched: int = 8  # measurements along a run
    watched_test: int = 500  # and the test examples they take
    elbo_examples: int = 500  # training examples for the expected log-likelihood
    kappa_examples: int = 100
    shares: tuple[float, ...] = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)  # of the weights that are removed
    # attacks
    members: int = 3  # networks per deep ensemble
    attacked: int = 100  # images
    iterations: int = 10
    step: float = 0.03  # for pixels in [0, 1]
    attack_draws: int = 12  # per prediction
    # the toy problem
    toy_steps: int = 2000
    toy_rate: float = 1e-3
    toy_width: int = 100
    toy_points: int = 500
    # the networks for CIFAR; none if 0
    vgg_width: int = 0
    vgg_epochs: int = 0


SCALES = read_scales(Path(__file__).with_name("scales.toml"), VarianceSettings)
