"""Settings of the study at each scale."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class VarianceSettings:
    """What is trained, on how much, and how it is measured.

    Args:
        data: data sets; the first is the one for LeNet-5.
        seeds: repetitions by default.
        channels, hidden: of LeNet-5 in the accuracy table.
        variance_layers: pattern of the weights that share an alpha per layer in the variance LeNet-5.
        table, examples, epochs, dropout_epochs: rows of the accuracy table, and their training; 0 examples are all.
        batch_size: of these.
        subset, subset_epochs, subset_batch, subset_channels, subset_hidden: the same in the other experiments.
        rate, momentum: Adam's; the rate falls to 0 linearly.
        log_alpha, held, noise_rate: log alpha starts there, is held for this share of the run, and then has this rate,
            which falls to 0 linearly.
        free_rate: the same for one alpha, or one variance, per weight: their gradients are those of single weights, and
            larger steps would carry all of them beyond any use.
        memory: b2 of Adam for log alpha and log scales.
        scale_rate: rate of the log scales of a zero-mean layer.
        test, subset_test, draws: test examples (0: all) of the accuracy table and of the other experiments, and
            draws of an ensemble.
        watched, watched_test: measurements along a run, and the test examples they take.
        elbo_examples: training examples for the expected log-likelihood.
        kappa_examples, shares: examples for kappa, and shares of the weights that are removed.
        members, attacked, iterations, step, attack_draws: networks per deep ensemble, attacked images, steps of the
            attack and their length for pixels in [0, 1], draws per prediction.
        toy_steps, toy_rate, toy_width, toy_points: the toy problem.
        vgg_width, vgg_epochs: the networks for CIFAR; none if 0.
    """

    data: tuple[str, ...]
    seeds: int
    channels: tuple[int, int] = (20, 50)
    hidden: int = 500
    variance_layers: str = "dense/weight"
    table: tuple[str, ...] = ("dropout", "zero-mean")
    examples: int = 0
    epochs: int = 9
    dropout_epochs: int = 2
    batch_size: int = 64
    subset: int = 6000
    subset_epochs: int = 5
    subset_batch: int = 64
    subset_channels: tuple[int, int] = (20, 50)
    subset_hidden: int = 500
    rate: float = 2e-3
    momentum: float = 0.9
    log_alpha: float = -5.0
    held: float = 0.2
    noise_rate: float = 1.0
    free_rate: float = 0.1
    memory: float = 0.9
    scale_rate: float = 2e-2
    test: int = 0
    subset_test: int = 1000
    draws: int = 30
    watched: int = 8
    watched_test: int = 500
    elbo_examples: int = 500
    kappa_examples: int = 100
    shares: tuple[float, ...] = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
    members: int = 3
    attacked: int = 100
    iterations: int = 10
    step: float = 0.03
    attack_draws: int = 12
    toy_steps: int = 2000
    toy_rate: float = 1e-3
    toy_width: int = 100
    toy_points: int = 500
    vgg_width: int = 0
    vgg_epochs: int = 0


SMOKE = VarianceSettings(
    data=("fashion_small",),
    seeds=1,
    channels=(4, 8),
    hidden=32,
    examples=512,
    epochs=3,
    dropout_epochs=2,
    subset=256,
    subset_epochs=3,
    batch_size=64,
    subset_batch=64,
    subset_channels=(4, 8),
    subset_hidden=32,
    test=100,
    subset_test=100,
    draws=5,
    watched=3,
    watched_test=100,
    elbo_examples=100,
    kappa_examples=50,
    shares=(0.5, 0.98),
    members=2,
    attacked=20,
    iterations=2,
    step=0.05,
    attack_draws=4,
    toy_steps=100,
    toy_width=20,
    toy_points=50,
)
LAPTOP = VarianceSettings(data=("mnist",), seeds=3)
PAPER = VarianceSettings(
    data=("mnist", "cifar10", "cifar100"),
    seeds=5,
    variance_layers="**/weight",
    table=("dropout", "layer", "zero-mean"),
    epochs=200,
    dropout_epochs=200,
    subset=0,
    subset_epochs=200,
    batch_size=128,
    subset_batch=128,
    rate=1e-3,
    momentum=0.95,
    log_alpha=-10.0,
    held=0.0,
    noise_rate=1e-3,
    free_rate=1e-3,
    memory=0.999,
    scale_rate=1e-3,
    subset_test=0,
    draws=100,
    watched=100,
    watched_test=0,
    elbo_examples=10_000,
    kappa_examples=5000,
    members=5,
    attacked=1000,
    iterations=30,
    step=0.5 / 255,
    attack_draws=10,
    toy_steps=21_000,
    toy_rate=1e-4,
    vgg_width=64,
    vgg_epochs=550,
)


def one_step(settings: VarianceSettings) -> VarianceSettings:
    """The same networks, for one step each, and measurements on a few examples."""
    return replace(
        settings,
        seeds=1,
        examples=settings.batch_size,
        epochs=1,
        dropout_epochs=1,
        subset=settings.subset_batch,
        subset_epochs=1,
        test=16,
        subset_test=16,
        draws=2,
        watched=1,
        watched_test=16,
        elbo_examples=8,
        kappa_examples=2,
        shares=(0.98,),
        members=2,
        attacked=4,
        iterations=1,
        attack_draws=2,
        toy_steps=1,
        toy_points=4,
        vgg_epochs=min(settings.vgg_epochs, 1),
    )
