import jax
import jax.numpy as jnp
import known
import numpy as np
import pytest

import posteriax as px
from posteriax import priors as p
from posteriax.data.batches import full_batch
from posteriax.methods import Task
from posteriax.methods.hmc import energy_change, prior_trajectory
from posteriax.methods.sampling.masses import prior_metric, reference_scale


def unused_weight(scale, leaves=1):
    """A network that does not look at its weights: the posterior is the prior."""
    params = {f"w{i}": np.zeros((50, 1), np.float32) for i in range(leaves)}
    return (lambda params, x: x[:, :1] * 0.0, params), p.Normal(scale=scale)


DATA = np.zeros((3, 1), np.float32), np.zeros(3, np.float32)


@pytest.mark.slow
def test_without_data_one_trajectory_forgets_the_start():
    """tau = pi scale / 2 carries w to scale * momentum, so that successive draws are independent."""
    net, prior = unused_weight(0.3)
    problem = px.Problem(net, px.Normal(scale=1.0), prior)
    posterior = px.fit(problem, DATA, px.HMC(step_size=0.005, jitter=0.0, warmup=1), draws=400, key=0)
    w = np.asarray(posterior.draws.network["w0"])[0, :, :, 0]
    assert posterior.trace["acceptance"].mean() > 0.999
    correlation = np.mean(w[1:] * w[:-1]) / np.mean(w**2)
    assert abs(correlation) < 4 / np.sqrt(w[1:].size)
    assert np.var(w) == pytest.approx(0.09, rel=4 * np.sqrt(2 / w.size))


@pytest.mark.slow
def test_priors_of_different_scales_share_one_period():
    net = unused_weight(1.0, leaves=2)[0]
    problem = px.Problem(net, px.Normal(scale=1.0), {"w0": p.Normal(10.0), "w1": p.Normal(0.1)})
    posterior = px.fit(problem, DATA, px.HMC(step_size=0.05, jitter=0.0, warmup=1), draws=200, key=0)
    assert posterior.trace["acceptance"].mean() > 0.99
    for name, scale in (("w0", 10.0), ("w1", 0.1)):
        w = np.asarray(posterior.draws.network[name])[0]
        assert np.std(w) == pytest.approx(scale, rel=4 / np.sqrt(2 * w.size))
        assert abs(np.mean(w[1:] * w[:-1])) / scale**2 < 4 / np.sqrt(w[1:].size)


@pytest.mark.parametrize(("variance", "temperature", "length"), [(1 / 40, 1.0, 0.248), (1 / 40, 0.3, 0.136)])
def test_the_trajectory_is_the_papers(variance, temperature, length):
    net, prior = unused_weight(variance**0.5)
    problem = px.Problem(net, px.Normal(scale=1.0), prior, temperature)
    assert reference_scale(problem) == pytest.approx(variance**0.5, rel=1e-5)
    assert prior_trajectory(None, problem) == pytest.approx(length, abs=6e-4)


def test_a_rejected_proposal_repeats_the_state():
    exact = known.linear_regression()
    posterior = px.fit(exact.problem, exact.data, px.HMC(step_size=0.16, warmup=20, start="network"), draws=200, key=3)
    w = np.asarray(posterior.draws.network["w"])[0, :, :, 0]
    accepted = posterior.trace["accepted"][20:]
    moved = (w[1:] != w[:-1]).any(axis=1)
    assert 0.05 < accepted.mean() < 0.95  # both happen
    np.testing.assert_array_equal(moved, accepted[1:])


def test_warm_up_finds_a_step_size_for_the_wanted_acceptance():
    exact = known.linear_regression()
    steps = []
    for wanted in (0.6, 0.95):
        method = px.HMC(warmup=300, target_acceptance=wanted, masses="prior")
        trace = px.fit(exact.problem, exact.data, method, draws=300, key=1).trace
        kept = trace["acceptance"][300:]
        assert kept.mean() > wanted - 4 * kept.std() / np.sqrt(len(kept))  # dual averaging errs on the safe side
        steps.append(trace["step_size"][300:].max())
    assert steps[0] > 1.5 * steps[1]


@pytest.mark.slow
def test_hopeless_step_size_is_an_error_that_says_what_to_do():
    exact = known.linear_regression()
    with pytest.raises(RuntimeError, match=r"accepted none of 30 warm-up proposals .* Try step_size=.*start=\"map\""):
        px.fit(exact.problem, exact.data, px.HMC(step_size=1.5, warmup=30), draws=5, key=0)


@pytest.mark.slow
def test_chains_are_independent_and_start_apart():
    exact = known.linear_regression()
    posterior = px.fit(exact.problem, exact.data, px.HMC(warmup=5), draws=20, chains=3, key=0)
    w = np.asarray(posterior.draws.network["w"])[..., 0]
    assert w.shape == (3, 20, 4)
    assert len({tuple(chain[0]) for chain in w}) == 3


@pytest.mark.slow
def test_start_at_map_begins_near_the_top():
    exact = known.linear_regression()
    posterior = px.fit(
        exact.problem, exact.data, px.HMC(warmup=1, start="map", step_size=1e-4, trajectory=2e-4), draws=1, key=0
    )
    np.testing.assert_allclose(posterior.mean["w"][:, 0], exact.mean, atol=0.05)


def test_batch_statistics_are_refused_with_the_reason():
    def apply(params, x):
        hidden = x @ params["w"]
        return (hidden - hidden.mean(axis=0)) / (hidden.std(axis=0) + 1e-3)

    net = (apply, {"w": jax.random.normal(jax.random.key(0), (2, 2))})
    (x, y), _ = px.data.two_moons(train=40)
    problem = px.Problem(net, px.Categorical())
    with pytest.raises(ValueError, match=r"batch statistics.*GroupNorm"):
        px.fit(problem, (x, y), px.HMC(), draws=5, key=0)
    posterior = px.fit(problem, (x, y), px.MAP(), steps=3, key=0)
    assert "couple the examples" in posterior.trace.notes[0]


@pytest.mark.slow
def test_the_leapfrog_is_reversible_and_of_second_order():
    """There and back again with the momentum turned; half the step, a quarter of the energy error."""
    from blackjax.mcmc.integrators import IntegratorState, velocity_verlet

    exact = known.linear_regression()
    task = Task(problem=exact.problem, example=None, num_examples=30, steps=1)
    kernel = px.HMC().bind(task)
    batch = full_batch(exact.problem.check(exact.data))
    log_joint, masses = kernel.log_joint(batch), prior_metric(exact.problem)
    start = exact.problem.latents
    momentum = masses.sample_momentum(jax.random.key(0), start)
    step = jax.jit(velocity_verlet(log_joint, masses.kinetic_energy))

    def run(state, size, count):
        for _ in range(count):
            state = step(state, size)
        return state

    begin = IntegratorState(start, momentum, *jax.value_and_grad(log_joint)(start))
    end = run(begin, 0.02, 20)
    turned = IntegratorState(
        end.position, jax.tree.map(jnp.negative, end.momentum), end.logdensity, end.logdensity_grad
    )
    back = run(turned, 0.02, 20)
    np.testing.assert_allclose(back.position.network["w"], start.network["w"], atol=1e-4)
    errors = []
    for size, count in ((0.04, 5), (0.02, 10), (0.01, 20)):
        end = run(begin, size, count)
        before, after = (kernel._parts(batch, s.position) for s in (begin, end))
        kinetic = masses.kinetic_energy(end.momentum) - masses.kinetic_energy(begin.momentum)
        errors.append(abs(float(energy_change(before, after, kinetic, 1.0))))
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.25)
    assert errors[1] / errors[2] == pytest.approx(4, rel=0.25)


def test_a_trajectory_that_would_be_cut_in_half_is_refused_before_the_run():
    exact = known.linear_regression()
    method = px.HMC(step_size=1e-4, warmup=2, max_leapfrogs=2000)
    with pytest.raises(RuntimeError, match=r"needs 15,708 leapfrogs .* max_leapfrogs=2,000 .*max_leapfrogs=15708"):
        px.fit(exact.problem, exact.data, method, draws=2, key=0)


@pytest.mark.slow
def test_a_step_size_that_warm_up_finds_too_small_is_refused_after_it():
    net = (lambda params, x: x @ params["w"], {"w": np.zeros((2, 1), np.float32)})
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    problem = px.Problem(net, px.Normal(0.01), p.Normal(10.0))  # 7,000 times as wide as the posterior
    with pytest.raises(RuntimeError, match=r"HMC needs [\d,]+ leapfrogs for one trajectory"):
        px.fit(problem, (x, x[:, 0]), px.HMC(masses="prior", warmup=60, max_leapfrogs=200), draws=2, key=0)


@pytest.mark.slow
def test_trajectories_cut_short_are_noted_and_diagnosed():
    exact = known.linear_regression()
    method = px.HMC(step_size=0.05, jitter=0.0, warmup=5, max_leapfrogs=24)  # of 32
    posterior = px.fit(exact.problem, exact.data, method, draws=10, chains=2, key=0)
    np.testing.assert_allclose(posterior.trace["cut"], 0.25)
    assert posterior.trace.notes == (
        "max_leapfrogs=24 cut off up to 25% of a trajectory: max_leapfrogs=32 would complete them",
    )
    verdict = posterior.diagnose().verdict
    assert "Trajectories were cut short by max_leapfrogs=, by up to 25 % (chains 0 and 1)" in verdict
    assert verdict.endswith("Try first: max_leapfrogs= at least 1.4 times as large.")
    whole = px.fit(exact.problem, exact.data, px.HMC(step_size=0.05, warmup=5), draws=10, key=0)
    assert whole.trace["cut"].max() == 0 and not whole.trace.notes


def test_adapted_masses_are_refused_where_the_prior_correlates_weights():
    net = (lambda params, x: x @ params["w"], {"w": np.zeros((2, 1), np.float32)})
    problem = px.Problem(net, px.Normal(1.0), {"w": p.EmpCov.from_covariance([[1.0, 0.5], [0.5, 1.0]])})
    data = np.ones((3, 2), np.float32), np.zeros(3, np.float32)
    with pytest.raises(ValueError, match=r'masses="adapted".*prior of w has correlated'):
        px.fit(problem, data, px.HMC(masses="adapted"), draws=2, key=0)
