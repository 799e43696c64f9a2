"""What diagnose() says of posteriors whose state is known, because they were made up."""

import re
from dataclasses import dataclass

import jax.numpy as jnp
import known
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.diagnostics import chain_agreement
from posteriax.diagnostics.chain_agreement import compare_chains, rhat_by_chance
from posteriax.diagnostics.training import summarize_training
from posteriax.diagnostics.verdict import training_lines
from posteriax.posterior import DrawsPosterior
from posteriax.problem import Latents

X = np.random.default_rng(9).normal(size=(30, 2)).astype(np.float32)


def network(params, x):
    """Its outputs do not change if both factors of the last layer change sign."""
    return x @ params["w"] * params["a"] * params["b"]


PARAMS = {"w": np.zeros((2, 3), np.float32), "a": np.ones((), np.float32), "b": np.ones((), np.float32)}
CLASSES = px.Problem((network, PARAMS), px.Categorical())
NUMBERS = px.Problem((network, PARAMS), px.Normal(scale=1.0))


def made_up(change=None, chains=4, draws=500, problem=CLASSES, seed=0, warmup=0, **trace):
    """Independent draws, which agree, unless `change` makes them something else in place."""
    rng = np.random.default_rng(seed)
    params = {name: rng.normal(size=(chains, draws, *np.shape(leaf))) for name, leaf in PARAMS.items()}
    params["a"], params["b"] = 2.0 + 0.1 * params["a"], 2.0 + 0.1 * params["b"]
    if change is not None:
        change(params)
    params = {name: leaf.astype(np.float32) for name, leaf in params.items()}
    return DrawsPosterior(problem, px.posterior.Trace(trace, warmup=warmup), Latents(params, {}))


def move(*chains):
    def change(params):
        params["w"][list(chains), :, :, 0] += 3.0

    return change


def reasons(diagnosis):
    """The verdict on chains that have not converged, after its first line."""
    first, _, rest = diagnosis.verdict.partition("\n")
    assert diagnosis.converged is False and first == f"Not converged: {'; '.join(diagnosis.shortcomings)}."
    return rest


def test_chains_that_agree():
    diagnosis = made_up().diagnose(X)
    assert diagnosis.verdict.startswith("Converged. The four chains agree: function-space")
    assert len(diagnosis.verdict.splitlines()) == 1
    assert diagnosis.predictions.size == diagnosis.predictions.looked_at == 30
    assert diagnosis.predictions.worst_rhat < 1.02
    assert diagnosis.predictions.smallest_ess > 1000  # 2,000 independent draws
    assert {leaf.name: leaf.size for leaf in diagnosis.leaves} == {"w": 6, "a": 1, "b": 1}


@pytest.mark.parametrize(
    ("moved", "verdict"),
    [
        ((2,), "One of four chains (chain 2) has not mixed with the others: function-space R-hat above 1.1 on "),
        ((0, 3), "The four chains have mixed only within two groups (chains 0 and 3; chains 1 and 2): "),
    ],
)
@pytest.mark.parametrize("problem", [CLASSES, NUMBERS], ids=["classes", "numbers"])
def test_chains_that_have_not_met_are_named(moved, verdict, problem):
    diagnosis = made_up(move(*moved), problem=problem).diagnose(X)
    assert reasons(diagnosis).startswith(verdict)
    assert "Lengthen the warm-up" in diagnosis.verdict
    assert diagnosis.predictions.above_bad > 0.5


def test_two_of_five_chains_and_no_two():
    five = made_up(lambda p: (move(1)(p), move(4)(p), move(4)(p)), chains=5, problem=NUMBERS).diagnose(X)
    assert reasons(five).startswith("Two of five chains (chains 1 and 4) have not mixed with the others")
    no_two = made_up(lambda p: [move(*range(i, 4))(p) for i in range(4)], problem=NUMBERS).diagnose(X)
    assert reasons(no_two).startswith("No two of the four chains have mixed")


def test_predictions_are_compared_chain_by_chain_and_point_by_point():
    """One chain disagrees only where the first input is not 0: at half of the test points."""
    x = X.copy()
    x[::2, 0] = 0.0

    def change(params):
        params["w"][1, :, 0, 0] += 5.0

    diagnosis = made_up(change, problem=NUMBERS).diagnose(x)
    assert diagnosis.predictions.above_bad == pytest.approx(0.5, abs=0.1)  # a few inputs are small
    assert "(chain 1)" in diagnosis.verdict


def test_symmetric_chains_differ_in_weights_and_agree_in_predictions():
    def flip(params):
        params["a"][:2] *= -1.0
        params["b"][:2] *= -1.0

    posterior = made_up(flip)
    both = posterior.diagnose(X).verdict.splitlines()
    assert both[0].startswith("Converged. The four chains agree: function-space")
    assert both[1].startswith("In weight space the chains differ") and "symmetries" in both[1]
    alone = reasons(posterior.diagnose())
    assert alone.startswith("In weight space the four chains have not mixed") and "diagnose(x)" in alone


def test_the_worst_weight_and_what_to_try_first_are_named():
    def change(params):
        params["w"][2, :, 1, 2] += 9.0

    posterior = made_up(change, problem=NUMBERS, warmup=250, log_joint=np.zeros((4, 750)))
    *_, worst, first = posterior.diagnose().verdict.splitlines()
    assert worst.startswith("Worst: w[1, 2], R-hat ") and first == "Try first: warmup=500, twice as long."
    farthest = int(np.argmax(np.abs(X[:, 1])))
    assert f"Worst: test point {farthest}, R-hat" in posterior.diagnose(X).verdict
    *_, worst, first = made_up(draws=30, problem=NUMBERS).diagnose().verdict.splitlines()
    assert "fewest effective draws in" in worst and re.fullmatch(r"Try first: draws=\d+\.", first)
    assert "Try first" not in made_up().diagnose(X).verdict  # nothing is wrong


def test_a_chain_that_never_moved():
    def stop(params):
        for leaf in params.values():
            leaf[1] = leaf[1, :1]

    lines = reasons(made_up(stop).diagnose(X)).splitlines()
    assert lines[0].startswith("Chain 1 of four never moved")
    assert "chain 1" in lines[1]


def test_no_chain_ever_moved():
    def stop(params):
        for leaf in params.values():
            leaf[:] = leaf[:, :1]

    assert reasons(made_up(stop).diagnose(X)).startswith("All four chains never moved")


def test_one_chain_cannot_show_that_it_has_met_others():
    diagnosis = made_up(chains=1).diagnose(X)
    assert diagnosis.verdict.startswith("Mixing cannot be checked with one chain: run chains=4.")
    assert np.isnan(diagnosis.predictions.worst_rhat)
    assert diagnosis.predictions.smallest_ess > 250


def test_chains_that_drift_together_are_slow():
    def drift(params):
        params["w"] += np.linspace(-4, 4, 500)[None, :, None, None]

    assert reasons(made_up(drift, problem=NUMBERS).diagnose(X)).startswith(
        ("The four chains are in the same place but", "It is unclear whether the four chains have mixed")
    )


def test_too_few_draws():
    assert reasons(made_up(draws=3).diagnose(X)).startswith("Too few draws: 3 per chain")
    lines = reasons(made_up(draws=30).diagnose(X)).splitlines()
    assert lines[0].startswith(("No sign", "It is unclear whether the four chains have mixed"))
    assert lines[1].startswith("Too few effective draws: ") and "400 are needed" in lines[1]


def test_chance_alone_rarely_exceeds_its_limit():
    """The limit is for one run of a hundred: of 40, more than 3 exceed it with probability 1e-3."""
    rng = np.random.default_rng(0)
    beyond = 0
    for _ in range(40):
        columns = compare_chains(rng.normal(size=(4, 100, 40)))
        beyond += columns.rhat.max() > rhat_by_chance(columns)
        assert 1.02 < rhat_by_chance(columns) < 1.06  # 1.015 is usual: the limit still says something
    assert beyond <= 3


def test_what_chance_gives_counts_distances_from_the_median_too():
    """Random signs make the values independent while their sizes are not: mixed chains with few effective draws for
    their scale. One run in a hundred may exceed the limit: of 20, more than 2 would happen once in a thousand."""
    rng, beyond, step = np.random.default_rng(0), 0, 0.8
    for _ in range(20):
        logs = rng.normal(size=(4, 400, 20))
        for i in range(1, 400):
            logs[:, i] = step * logs[:, i - 1] + np.sqrt(1 - step**2) * logs[:, i]
        columns = compare_chains(np.exp(logs / 2) * rng.choice([-1.0, 1.0], size=logs.shape))
        beyond += columns.rhat.max() > rhat_by_chance(columns)
    assert beyond <= 2


def test_arviz_gets_what_was_recorded_with_the_kept_draws():
    """A chain that keeps one of three steps after 7 of warm-up: steps 9, 12, 15, ..."""
    steps = np.broadcast_to(np.arange(7 + 3 * 20), (4, 67))
    data = made_up(draws=20, warmup=7, log_joint=steps).to_arviz()
    np.testing.assert_array_equal(data.sample_stats["log_joint"], np.broadcast_to(np.arange(9, 67, 3), (4, 20)))


def recorded(steps, **values):
    return {name: np.broadcast_to(np.asarray(value), (4, steps)).copy() for name, value in values.items()}


def test_divergences_after_warm_up_count():
    trace = recorded(600, divergent=False, acceptance=0.9)
    trace["divergent"][:, :100] = True  # in warm-up: no matter
    trace["divergent"][1, [100, 300]] = True
    trace["divergent"][3, 599] = True
    diagnosis = made_up(warmup=100, **trace).diagnose(X)
    assert diagnosis.sampler.divergences == (0, 2, 0, 1)
    assert diagnosis.sampler.transitions == 500
    assert "3 divergent transitions after warm-up (chains 1 and 3)" in diagnosis.verdict
    assert "3 divergences in 4 x 500 transitions" in str(diagnosis)


def widen(params):
    """One chain is twice as wide: the folded R-hat sees it, effective draws for the location do not."""
    params["w"][1] *= 2.0


@pytest.mark.parametrize(
    ("change", "draws", "divergent", "shortcoming"),
    [
        (None, 500, 2, None),  # one in a thousand is tolerated
        (widen, 500, 0, "R-hat "),
        (None, 60, 0, "effective draws (400 effective draws needed, 100 per chain)"),
        (None, 500, 3, "3 divergent transitions of 2,000 (at most 1 in 1,000)"),
    ],
    ids=["none", "R-hat", "draws", "divergences"],
)
@pytest.mark.parametrize("x", [None, X], ids=["weights", "predictions"])
def test_each_condition_alone_decides_whether_chains_have_converged(change, draws, divergent, shortcoming, x):
    """Independent draws: 2,000 of them have about 2,000 effective ones, 240 can have no more than about 240."""
    trace = recorded(draws, divergent=False)
    trace["divergent"][0, :divergent] = True
    diagnosis = made_up(change, draws=draws, problem=NUMBERS, **trace).diagnose(x)
    assert diagnosis.converged is (shortcoming is None)
    assert len(diagnosis.shortcomings) == (shortcoming is not None)
    if shortcoming is not None:
        assert shortcoming in diagnosis.shortcomings[0]
        assert diagnosis.verdict.startswith(f"Not converged: {diagnosis.shortcomings[0]}.\n")
    else:
        assert diagnosis.verdict.startswith("Converged. ") and "few enough to be tolerated" in diagnosis.verdict
        assert "Try first" not in diagnosis.verdict


def test_samplers_that_record_no_divergences_are_judged_by_their_draws():
    assert made_up(log_joint=np.zeros((4, 500))).diagnose(X).converged is True
    assert made_up(draws=60, log_joint=np.zeros((4, 60))).diagnose(X).converged is False


def test_one_chain_may_be_known_to_be_wrong_but_not_to_be_right():
    assert made_up(chains=1).diagnose(X).converged is None
    assert made_up(chains=1, draws=60).diagnose(X).converged is False
    diverging = {"divergent": np.arange(500)[None] < 5}
    assert made_up(chains=1, **diverging).diagnose(X).shortcomings == (
        "5 divergent transitions of 500 (at most 1 in 1,000)",
    )


def funnel():
    """Neal's funnel: v ~ N(0, 3^2), x_i ~ N(0, exp(v / 2)^2). The output is what the prior lacks of its log density."""

    def log_density(params, x):
        scale = jnp.exp(params["v"][0] / 2)
        narrow = dist.Normal(0.0, scale).log_prob(params["x"]) - dist.Normal(0.0, 1.0).log_prob(params["x"])
        return x * narrow.sum()

    @dataclass(frozen=True)
    class Given(px.likelihoods.NumberLikelihood):
        def distribution(self, latents, outputs):
            return dist.Normal(outputs, 1.0)

        def log_prob(self, latents, outputs, y):
            return outputs[:, 0]

    params = {"v": np.zeros(1, np.float32), "x": np.ones(5, np.float32)}
    return px.Problem((log_density, params), Given(), prior={"v": p.Normal(3.0), "x": p.Normal(1.0)})


def test_a_funnel_whose_neck_is_missed_is_not_converged():
    """NUTS at its usual acceptance diverges at the neck, and its draws of v are far from independent."""
    data = np.ones((1, 1), np.float32), np.zeros(1, np.float32)
    method = px.NUTS(warmup=200, max_doublings=6, start="network")
    posterior = px.fit(funnel(), data, method, draws=300, chains=4, key=1)
    diagnosis = posterior.diagnose()
    assert diagnosis.converged is False
    assert any("effective draws" in reason for reason in diagnosis.shortcomings)
    assert any("divergent" in reason for reason in diagnosis.shortcomings)


def test_a_gaussian_that_is_sampled_well_is_converged():
    exact = known.linear_regression()
    posterior = px.fit(exact.problem, exact.data, px.HMC(warmup=100, start="network"), draws=1000, chains=4, key=0)
    for x in (None, exact.data[0]):
        diagnosis = posterior.diagnose(x)
        assert diagnosis.converged is True and diagnosis.verdict.startswith("Converged. ")


def test_low_acceptance_and_energy():
    trace = recorded(500, acceptance=[[0.9], [0.2], [0.9], [0.9]], energy=0.0)
    noise = np.random.default_rng(0).normal(size=(4, 500))
    trace["energy"] = np.concatenate([noise[:3], np.cumsum(noise[3:], axis=1)])
    verdict = made_up(**trace).diagnose(X).verdict
    assert "Low acceptance, 0.20 (chain 1)" in verdict
    assert "below 0.3 (chain 3)" in verdict
    assert "Low" not in made_up(**recorded(500, acceptance=0.8)).diagnose(X).verdict


def test_large_leaves_and_test_sets_are_sampled(monkeypatch):
    monkeypatch.setattr(chain_agreement, "LOOKED_AT", 5)
    diagnosis = made_up().diagnose(X)
    assert (diagnosis.predictions.looked_at, diagnosis.predictions.size) == (5, 30)
    assert (diagnosis.leaves[2].looked_at, diagnosis.leaves[2].size) == (5, 6)
    assert "5 of 30" in str(diagnosis)
    assert diagnosis == made_up().diagnose(X)  # the same sample again


def test_parts_change_nothing(monkeypatch):
    """Leaves are read and predictions made in parts; here one draw and a few test points at a time."""
    whole = made_up(move(2)).diagnose(X)
    monkeypatch.setattr(chain_agreement, "BLOCK_BYTES", 1)
    monkeypatch.setattr(chain_agreement, "PREDICTION_BYTES", 4 * 2000 * 3 * 7)
    parts = made_up(move(2)).diagnose(X)
    assert parts.leaves == whole.leaves
    assert parts.verdict == whole.verdict
    assert parts.predictions.worst_rhat == pytest.approx(whole.predictions.worst_rhat, rel=1e-4)


def test_fewer_draws_are_evenly_spread():
    """Every other draw of one chain lies elsewhere, and is not looked at."""

    def change(params):
        params["w"][0, 1::2] += 50.0

    posterior = made_up(change, problem=NUMBERS)
    few, all_draws = posterior.diagnose(X, draws=250), posterior.diagnose(X)
    assert max(few.predictions.worst_rhat, few.leaves[2].worst_rhat) < 1.05
    assert min(all_draws.predictions.worst_rhat, all_draws.leaves[2].worst_rhat) > 1.1
    with pytest.raises(ValueError, match="draws must be"):
        made_up().diagnose(X, draws=0)


def test_draws_on_disk_are_read_by_indices_alone():
    class OnDisk:
        def __init__(self, array):
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        def __getitem__(self, index):
            chains, draws = index
            return self.array[chains, draws]

    posterior = made_up()
    stored = Latents({name: OnDisk(leaf) for name, leaf in posterior.draws.network.items()}, {})
    assert DrawsPosterior(CLASSES, posterior.trace, stored).diagnose().leaves == posterior.diagnose().leaves


def test_a_printed_diagnosis_is_a_table_and_the_verdict():
    diagnosis = made_up().diagnose(X)
    text = str(diagnosis)
    assert repr(diagnosis) == text
    assert text.startswith("Four chains of 500 draws")
    assert text.endswith(diagnosis.verdict)
    assert "\x1b" not in text
    assert len({len(line) for line in text.splitlines() if line[:1] in "│┃"}) == 1  # aligned


STEPS = np.arange(800)
NOISE = np.random.default_rng(0).normal(size=(3, 800))


@pytest.mark.parametrize(
    ("objective", "verdict"),
    [
        (-300.0 + 5 * NOISE[0], "The log joint levelled off: converged"),
        (
            -300.0 + 0.5 * STEPS + 5 * NOISE[0],
            "The log joint was still rising when training ended, so it had not converged: train longer",
        ),
        (
            -300.0 - 0.5 * STEPS + 5 * NOISE[0],
            "The log joint was falling when training ended, so it had not converged: use a smaller",
        ),
        (-300.0 + 1e-4 * STEPS, "The log joint levelled off: converged"),  # clear, but a fiftieth of a nat
        (np.stack([STEPS, 0 * STEPS, 0 * STEPS]) + NOISE, "The log joint of 1 of 3 members was still rising"),
        (np.zeros(10), "Too few steps were recorded"),
    ],
)
def test_training(objective, verdict):
    points = made_up(chains=len(np.atleast_2d(objective)), draws=1, log_joint=objective)
    diagnosis = points.diagnose(X)
    assert diagnosis.verdict.startswith(verdict)
    says = None if "too few" in verdict.lower() else "not converged" not in diagnosis.verdict
    assert diagnosis.converged is says
    assert "no R-hat" in diagnosis.verdict
    assert "in the quarter before" not in diagnosis.verdict


def test_a_rise_that_ended_with_the_learning_rate_is_told():
    """It rises by 100 nats over the third quarter, and stands still in the last."""
    diagnosis = made_up(chains=1, draws=1, log_joint=0.5 * np.minimum(STEPS, 600) + 5 * NOISE[0]).diagnose()
    assert diagnosis.training.rise_before[0] == pytest.approx(100.0, abs=4 * diagnosis.training.error_before[0])
    assert "levelled off" in diagnosis.verdict and "see whether it ends higher" in diagnosis.verdict


def test_variational_posteriors_have_training_but_no_chains():
    exact = px.fit(
        NUMBERS, (X, X @ np.ones((2, 3), np.float32)), px.VI(q.Normal(), optimizer=optax.adam(1e-2)), steps=40, key=0
    )
    diagnosis = exact.diagnose(X)
    assert diagnosis.training.objective == "elbo"
    assert diagnosis.leaves == ()
    with pytest.raises(TypeError, match=r"\.sample\(key, n\)"):
        exact.to_arviz()


@pytest.mark.parametrize(("objective", "called"), [("elbo", "ELBO"), ("free_energy", "free_energy")])
def test_an_objective_of_a_strangers_method_goes_by_its_name(objective, called):
    """Still rising by 4 nats a step: the verdict names what was recorded first."""
    lines = training_lines(summarize_training({objective: np.linspace(0.0, 4e3, 1000)}), members=1)
    assert called in lines[0]
    assert "rising" in lines[0]
