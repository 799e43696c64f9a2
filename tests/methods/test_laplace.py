"""Laplace: exact where the posterior is Gaussian, its curvatures against matrices formed from whole Jacobians."""

import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import known
import numpy as np
import optax
import pytest
from scipy.stats import multivariate_normal

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.data import full_batch
from posteriax.methods.curvature import gauss_newton

PRIOR = 0.7


@pytest.fixture(scope="module")
def small():
    """Three classes, a network of two layers that has been trained for a moment."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 3)).astype(np.float32)
    y = rng.integers(0, 3, 20)
    net = eqx.nn.MLP(3, 3, 4, 1, activation=jnp.tanh, key=jax.random.key(0))
    problem = px.Problem(net, px.Categorical(), p.Normal(scale=PRIOR))
    return problem, (x, y), px.fit(problem, (x, y), px.MAP(), epochs=100, batch_size=20, key=0)


def laplace(small, **settings):
    problem, data, at_mode = small
    return px.fit(problem, data, px.Laplace(mode=at_mode, **settings), epochs=1, batch_size=8, key=1)


def gauss_newton_by_jacobians(posterior, x):
    """G over all weights, by leaf, from J_n' H_n J_n with H = diag(p) - p p'."""
    params = posterior.mean
    jacobian = jax.jit(jax.jacobian(lambda own: posterior.problem.outputs(own, x)))(params)
    leaves = jax.tree.leaves(jacobian)
    rows = np.concatenate([np.asarray(leaf, np.float64).reshape(len(x), 3, -1) for leaf in leaves], axis=2)
    probs = np.asarray(jax.nn.softmax(posterior.problem.outputs(params, x)), np.float64)
    hessian = np.einsum("nc,cd->ncd", probs, np.eye(3)) - np.einsum("nc,nd->ncd", probs, probs)
    sizes = [leaf[0, 0].size for leaf in leaves]
    return np.einsum("nci,ncd,ndj->ij", rows, hessian, rows), np.cumsum([0, *sizes])


def covariance_of(posterior):
    """The covariance of all weights, block by block."""
    weights = posterior.drawn_from
    blocks = {}
    for block in weights.blocks:
        own = jax.tree.map(lambda a: jnp.asarray(a[0]), weights.variational[block.name])
        blocks[block.name] = np.asarray(block.family.covariance(own), np.float64)
    return blocks


def test_full_is_the_inverse_of_the_gauss_newton_matrix_and_the_prior(small):
    posterior = laplace(small, structure="full")
    matrix, _ = gauss_newton_by_jacobians(small[2], small[1][0])
    expected = np.linalg.inv(matrix + np.eye(len(matrix)) / PRIOR**2)
    (found,) = covariance_of(posterior).values()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_diagonal_is_that_of_the_gauss_newton_matrix(small):
    posterior = laplace(small, structure="diagonal")
    matrix, ends = gauss_newton_by_jacobians(small[2], small[1][0])
    expected = 1 / (np.diag(matrix) + 1 / PRIOR**2)
    for i, found in enumerate(covariance_of(posterior).values()):
        np.testing.assert_allclose(np.diag(found), expected[ends[i] : ends[i + 1]], rtol=1e-4)


@pytest.mark.slow
def test_kronecker_has_the_factors_of_each_layer(small):
    """For Equinox, whose weights are (outputs, inputs): B (x) A + 1 / s^2, with factors formed by hand."""
    _, (x, _), at_mode = small
    posterior = laplace(small, structure="kronecker")
    params = at_mode.mean
    w0, b0, w1, b1 = (np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(params))
    hidden = np.tanh(x @ w0.T + b0)
    probs = np.asarray(jax.nn.softmax(hidden @ w1.T + b1), np.float64)
    hessian = np.einsum("nc,cd->ncd", probs, np.eye(3)) - np.einsum("nc,nd->ncd", probs, probs)
    at_hidden = np.einsum("cj,nj->ncj", w1, 1 - hidden**2)
    for name, inputs, outputs in (
        ("layers/0/weight", x, np.einsum("nci,ncd,ndj->ij", at_hidden, hessian, at_hidden)),
        ("layers/1/weight", hidden, hessian.sum(axis=0)),
    ):
        curvature = np.kron(outputs, inputs.T @ inputs / len(x))
        expected = np.linalg.inv(curvature + np.eye(len(curvature)) / PRIOR**2)
        np.testing.assert_allclose(covariance_of(posterior)[name], expected, rtol=2e-4, atol=1e-5)
    assert isinstance(posterior.drawn_from.families["layers/0/weight"], q.RotatedNormal)
    assert isinstance(posterior.drawn_from.families["layers/0/bias"], q.FullCovariance)
    np.testing.assert_allclose(
        covariance_of(posterior)["layers/1/bias"], np.linalg.inv(hessian.sum(axis=0) + np.eye(3) / PRIOR**2), rtol=1e-4
    )


@pytest.mark.slow
def test_a_convolution_has_factors_in_the_order_of_its_leaf():
    """With one position and one example, K-FAC is exact: the diagonal of B (x) A is that of the Gauss-Newton matrix."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(1, 2, 3, 3)).astype(np.float32), np.array([1])

    class Net(eqx.Module):
        conv: eqx.nn.Conv2d

        def __call__(self, x):
            return self.conv(x).reshape(-1)

    net = Net(eqx.nn.Conv2d(2, 3, 3, key=jax.random.key(0)))
    problem = px.Problem(net, px.Categorical())
    kronecker, diagonal = (
        px.fit(problem, (x, y), px.Laplace(mode="network", structure=name), epochs=1, key=0).drawn_from
        for name in ("kronecker", "diagonal")
    )
    own = jax.tree.map(lambda a: jnp.asarray(a[0]), diagonal.variational["conv/weight"])
    precision = 1 / np.asarray(q.Normal().variance(own))
    rotated = jax.tree.map(lambda a: jnp.asarray(a[0]), kronecker.variational["conv/weight"])
    covariance = np.asarray(q.RotatedNormal().covariance(rotated), np.float64)
    found = np.diag(np.linalg.inv(covariance)).reshape(precision.shape)
    np.testing.assert_allclose(found, precision, rtol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("outcomes", [1, 2, 7, 40])
def test_roots_of_output_curvature_give_it_back(outcomes):
    rng = np.random.default_rng(outcomes)
    probs = rng.dirichlet(np.full(outcomes, 0.3), size=50)  # some classes are next to impossible
    softmax = np.einsum("ni,ij->nij", probs, np.eye(outcomes)) - np.einsum("ni,nj->nij", probs, probs)
    half = rng.normal(size=(50, outcomes, outcomes))
    for matrices in (softmax, half @ half.transpose(0, 2, 1)):
        root = np.asarray(gauss_newton.roots(jnp.asarray(matrices, jnp.float32)), np.float64)
        error = np.abs(root @ root.transpose(0, 2, 1) - matrices).max(axis=(1, 2))
        assert (error <= 2e-6 * outcomes * np.abs(matrices).max(axis=(1, 2))).all()


def test_the_curvature_of_many_examples_is_found_without_batched_decompositions(small):
    """Two calls for many matrices at the same time can wait for each other for ever (jaxlib 0.10, CPU)."""
    problem, data = small[:2]
    batch = full_batch(problem.check_weighted(data))
    program = jax.jit(lambda latents: gauss_newton.diagonal(problem, latents, batch, range(2)))
    assert "lapack_" not in program.lower(problem.latents).compile().as_text()


@pytest.mark.slow
def test_low_rank_is_full_if_the_data_determine_no_more_directions(small):
    """20 examples of 3 classes, each with a Hessian of rank 2: 40 directions, more than the 31 weights; 6 give 12."""
    problem, (x, y), at_mode = small
    few = x[:6], y[:6]
    full, low_rank = (
        px.fit(problem, few, px.Laplace(mode=at_mode, structure=name, rank=12), epochs=1, batch_size=2, key=1)
        for name in ("full", "low-rank")
    )
    (expected,), (found,) = (covariance_of(one).values() for one in (full, low_rank))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert low_rank.trace["log_evidence"] == pytest.approx(full.trace["log_evidence"], abs=1e-3)
    assert isinstance(low_rank.drawn_from.families["layers/0/weight"], q.LowRankPrecision)


@pytest.mark.slow
def test_low_rank_keeps_the_leading_directions_in_units_of_the_prior(small):
    """The covariance of rank r closest to the full one: S (I - U l / (1 + l) U') S with the r largest l of S G S."""
    _, (x, _), at_mode = small
    matrix, _ = gauss_newton_by_jacobians(at_mode, x)
    values, vectors = np.linalg.eigh(PRIOR**2 * matrix)
    distances = []
    for rank in (2, 8):
        (found,) = covariance_of(laplace(small, structure="low-rank", rank=rank)).values()
        top, along = values[-rank:], vectors[:, -rank:]
        expected = PRIOR**2 * (np.eye(len(matrix)) - (along * (top / (1 + top))) @ along.T)
        # 2 rank + 10 random directions see all but the smallest of 31: 1 % of the prior's variance
        np.testing.assert_allclose(found, expected, atol=0.01 * PRIOR**2)
        exact = np.linalg.inv(matrix + np.eye(len(matrix)) / PRIOR**2)
        distances.append(np.linalg.norm(found - exact))
    assert distances[0] > 1.5 * distances[1]


def test_low_rank_needs_gaussian_priors(small):
    problem = px.Problem(small[0].network, px.Categorical(), p.Laplace(0.5))
    with pytest.raises(ValueError, match=r"Gaussian prior, but layers/0/weight has Laplace"):
        px.fit(problem, small[1], px.Laplace(mode="network", structure="low-rank"), epochs=1, key=0)


@pytest.mark.slow
@pytest.mark.parametrize("structure", ["full", "kronecker", "low-rank"])
def test_linear_regression_is_exact(structure):
    exact = known.linear_regression()
    posterior = px.fit(
        exact.problem, exact.data, px.Laplace(structure=structure, predictive="draws"), epochs=1, key=0, batch_size=7
    )
    (covariance,) = covariance_of(posterior).values()
    np.testing.assert_allclose(np.asarray(posterior.mean["w"])[:, 0], exact.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(covariance, exact.covariance, rtol=1e-4, atol=1e-6)


OTHER_LENGTHS = {"1": {"epochs": 1}, "2": {"epochs": 2}, "2.6": {"steps": 13}}


@pytest.mark.parametrize(
    "length",
    [
        pytest.param({"epochs": 10}, id="10"),
        *(pytest.param(length, id=id, marks=pytest.mark.slow) for id, length in OTHER_LENGTHS.items()),
    ],
)
def test_the_data_count_once_however_long_the_run(length):
    """Linear regression in five batches per epoch: covariance and evidence in closed form, in float64."""
    exact = known.linear_regression()
    method = px.Laplace(structure="full", predictive="draws")
    posterior = px.fit(exact.problem, exact.data, method, key=0, batch_size=6, **length)
    (covariance,) = covariance_of(posterior).values()
    # sums of 30 float32 terms and a Cholesky factor: some 1e-6, with room for the condition number of 10
    np.testing.assert_allclose(covariance, exact.covariance, rtol=1e-4, atol=1e-6)
    x, y = (np.asarray(a, np.float64) for a in exact.data)
    evidence = multivariate_normal(np.zeros(len(y)), 0.25 * np.eye(len(y)) + x @ x.T).logpdf(y)
    assert posterior.trace["log_evidence"] == pytest.approx(evidence, rel=1e-4)


@pytest.mark.slow
def test_the_data_count_once_if_only_what_is_not_fixed_is_linear():
    """A fixed hidden layer leaves a linear regression on its outputs."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(30, 2)).astype(np.float32)
    y = (np.sin(x[:, 0]) + 0.3 * rng.normal(size=30)).astype(np.float32)
    net = eqx.nn.MLP(2, 1, 4, 1, activation=jnp.tanh, key=jax.random.key(0))
    problem = px.Problem(net, px.Normal(0.3), p.Normal(PRIOR), fixed="layers/0/**")
    posterior = px.fit(problem, (x, y), px.Laplace(structure="full"), epochs=30, key=0)
    first = net.layers[0]
    hidden = np.tanh(x.astype(np.float64) @ np.asarray(first.weight, np.float64).T + np.asarray(first.bias, np.float64))
    rows = np.column_stack([hidden, np.ones(30)])
    expected = np.linalg.inv(rows.T @ rows / 0.3**2 + np.eye(5) / PRIOR**2)
    (covariance,) = covariance_of(posterior).values()
    np.testing.assert_allclose(covariance, expected, rtol=1e-3, atol=1e-5)  # float32, condition number 100
    evidence = multivariate_normal(np.zeros(30), 0.09 * np.eye(30) + PRIOR**2 * rows @ rows.T).logpdf(y)
    assert posterior.trace["log_evidence"] == pytest.approx(evidence, rel=1e-4)


@pytest.mark.parametrize(
    "structure",
    ["kronecker", *(pytest.param(name, marks=pytest.mark.slow) for name in ("diagonal", "full", "low-rank"))],
)
def test_the_evidence_of_logistic_regression_is_that_of_one_epoch(structure):
    """Laplace's formula by hand, in float64, for the full matrix; one epoch for the others."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(40, 3)).astype(np.float32)
    y = (x @ [1.0, -1.0, 0.5] + rng.logistic(size=40) > 0).astype(int)
    net = (lambda params, inputs: inputs @ params["w"], {"w": np.zeros((3, 1), np.float32)})
    problem = px.Problem(net, px.Bernoulli(), p.Normal(1.0))
    one, many = (
        px.fit(problem, (x, y), px.Laplace(structure=structure), epochs=epochs, key=0, batch_size=20)
        for epochs in (1, 50)
    )
    # the same terms in the same order
    assert many.trace["log_evidence"] == pytest.approx(one.trace["log_evidence"], rel=1e-6)
    if structure != "full":
        return
    w, rows = np.zeros(3), x.astype(np.float64)
    for _ in range(30):
        chance = 1 / (1 + np.exp(-rows @ w))
        hessian = (rows * (chance * (1 - chance))[:, None]).T @ rows + np.eye(3)
        w = w + np.linalg.solve(hessian, rows.T @ (y - chance) - w)
    log_joint = -np.logaddexp(0, -(2 * y - 1) * (rows @ w)).sum() - 0.5 * w @ w - 1.5 * np.log(2 * np.pi)
    expected = log_joint + 1.5 * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(hessian)[1]
    assert many.trace["log_evidence"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_training_ends_with_a_whole_epoch_for_the_curvature(small):
    """Batches of two epochs overlap: a pass across their border would count some examples twice, others never."""
    problem, data, _ = small
    still = px.Laplace(structure="full", optimizer=optax.sgd(0.0))  # the weights stay where they start
    found = px.fit(problem, data, still, steps=8, batch_size=8, key=0)  # three steps per epoch
    once = px.fit(problem, data, px.Laplace(structure="full", mode="network"), epochs=1, batch_size=8, key=1)
    assert found.trace["log_evidence"] == pytest.approx(once.trace["log_evidence"], rel=1e-6)  # in another order


@pytest.mark.parametrize("structure", ["full", "low-rank"])
def test_the_evidence_of_linear_regression_is_exact(structure):
    exact = known.linear_regression()
    posterior = px.fit(exact.problem, exact.data, px.Laplace(structure=structure), epochs=1, key=0)
    x, y = (np.asarray(a, np.float64) for a in exact.data)
    expected = multivariate_normal(np.zeros(len(y)), 0.25 * np.eye(len(y)) + x @ x.T).logpdf(y.reshape(-1))
    assert posterior.trace["log_evidence"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("structure", ["full", "low-rank"])
def test_many_examples_and_little_noise_do_not_hide_the_prior(structure):
    """Curvatures from 1e-5 to 1e7 beside a prior of 0.1, in float32: the evidence against NumPy in float64."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 4)).astype(np.float32)
    net = eqx.nn.MLP(4, 1, 12, 1, activation=jnp.tanh, key=jax.random.key(0))
    problem = px.Problem(net, px.Normal(0.02), p.Normal(3.0))
    params = problem.network.params
    y = np.asarray(problem.outputs(params, x)) + 0.02 * rng.normal(size=(1000, 1)).astype(np.float32)
    method = px.Laplace(structure=structure, mode="network", rank=73)
    posterior = px.fit(problem, (x, y), method, epochs=1, batch_size=250, key=0)
    slope = jax.grad(lambda own, row: problem.outputs(own, row[None])[0, 0])
    slopes = jax.jit(jax.vmap(slope, (None, 0)))(params, x)
    leaves = [np.asarray(leaf, np.float64).reshape(1000, -1) for leaf in jax.tree.leaves(slopes)]
    rows = np.concatenate(leaves, axis=1) / 0.02
    values = np.linalg.eigvalsh(rows.T @ rows)
    assert values[-1] > 1e6
    assert values[0] < 0.1
    expected = float(problem.log_joint(params, (x, y))) - 0.5 * np.log((values + 1 / 9) / (2 * np.pi)).sum()
    # a sketch in float32 sees a direction that is 1e-8 of the first with an error of its own size
    assert posterior.trace["log_evidence"] == pytest.approx(expected, abs=0.02 if structure == "full" else 1.0)


def test_a_prior_without_curvature_is_one_line(small):
    problem, (x, y) = px.Problem(small[0].network, px.Categorical(), p.Laplace(0.5)), small[1]
    with pytest.raises(ValueError, match="the prior has no curvature at the mode"):
        px.fit(problem, (x[:6], y[:6]), px.Laplace(mode="network", structure="full"), epochs=1, key=0)


@pytest.mark.slow
def test_linearised_predictions_have_the_moments_of_the_linear_model(small):
    """Mean f(x, w*) and covariance J S J', within five standard errors of 20,000 draws."""
    problem, (x, _), at_mode = small
    posterior = laplace(small, structure="full")
    draws = posterior.predict(x[:4], draws=20_000).outputs
    (covariance,) = covariance_of(posterior).values()
    jacobian = jax.jacobian(lambda own: problem.outputs(own, x[:4]))(at_mode.mean)
    rows = np.concatenate([np.asarray(leaf).reshape(4, 3, -1) for leaf in jax.tree.leaves(jacobian)], axis=2)
    variance = np.einsum("nci,ij,ncj->nc", rows, covariance, rows)
    centre = np.asarray(problem.outputs(at_mode.mean, x[:4]))
    assert (np.abs(draws.mean(axis=0) - centre) < 5 * np.sqrt(variance / 20_000)).all()
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=5 * np.sqrt(2 / 20_000))


@pytest.mark.slow
def test_the_last_layer_alone(small):
    _, (x, _), at_mode = small
    posterior = laplace(small, over="layers/1", structure="full")
    assert isinstance(posterior.drawn_from.families["layers/0/weight"], q.Point)
    matrix, ends = gauss_newton_by_jacobians(at_mode, x)
    last = matrix[ends[2] :, ends[2] :]
    np.testing.assert_allclose(
        covariance_of(posterior)["layers/1/weight"],
        np.linalg.inv(last + np.eye(len(last)) / PRIOR**2),
        rtol=1e-3,
        atol=1e-5,
    )


@pytest.mark.slow
@pytest.mark.parametrize("structure", ["kronecker", "low-rank"])
def test_saved_and_loaded_it_predicts_the_same(small, tmp_path, structure):
    posterior, x = laplace(small, structure=structure), small[1][0]
    posterior.save(tmp_path / "laplace.posterior")
    again = px.load(tmp_path / "laplace.posterior", eqx.nn.MLP(3, 3, 4, 1, activation=jnp.tanh, key=jax.random.key(5)))
    assert (again.predict(x, 10).probs == posterior.predict(x, 10).probs).all()


@pytest.mark.slow
@pytest.mark.parametrize("structure", ["full", "low-rank"])
def test_it_is_pickled_compared_and_diagnosed(small, structure):
    posterior, (x, y) = laplace(small, structure=structure), small[1]
    again = pickle.loads(pickle.dumps(posterior))
    assert (again.predict(x, 10).probs == posterior.predict(x, 10).probs).all()
    table = px.compare({"MAP": small[2], "Laplace": posterior}, (x, y), draws=20)
    assert np.isfinite(table["Laplace"]["nll"])
    assert str(posterior.diagnose(x))


@pytest.mark.slow
@pytest.mark.parametrize("structure", ["kronecker", "low-rank"])
def test_members_of_an_ensemble_have_modes_of_their_own(small, structure):
    problem, data, _ = small
    posterior = px.fit(problem, data, px.Ensemble(px.Laplace(structure=structure), 3), epochs=5, batch_size=8, key=0)
    assert posterior.trace["log_evidence"].shape == (3,)
    assert posterior.predict(data[0], 9).probs.shape == (20, 3)


@pytest.mark.parametrize(
    ("settings", "epochs", "message"),
    [
        ({"mode": "train"}, 1, "epochs=2 or more"),
        ({"mode": "network"}, 3, "epochs=1"),
        ({"mode": "network", "over": "head"}, 1, 'over="head" matches no leaf'),
        ({"structure": "circular"}, 1, 'structure must be "diagonal"'),
    ],
)
def test_errors_say_what_to_do(small, settings, epochs, message):
    with pytest.raises(ValueError, match=message):
        px.fit(small[0], small[1], px.Laplace(**settings), epochs=epochs, key=0)


@pytest.mark.slow
def test_a_mode_is_one_point(small):
    spread = px.fit(small[0], small[1], px.VI(), steps=2, key=0)
    with pytest.raises(ValueError, match="a posterior of one point"):
        px.Laplace(mode=spread)


def test_newton_steps_do_not_take_the_first_batch_for_the_data():
    exact = known.linear_regression()
    x, y = exact.data

    class Halves:
        def __len__(self):
            return 2

        def __iter__(self):
            yield from ((x[:15], y[:15]), (x[15:], y[15:]))

    with pytest.raises(ValueError, match="the whole data set"):
        px.fit(exact.problem, Halves(), px.Laplace(), epochs=1, key=0)


def test_a_leaf_that_is_used_twice_has_no_factors():
    def apply(params, x):
        return jnp.tanh(x @ params["w"]) @ params["w"]

    network = px.network((apply, {"w": np.eye(3, dtype=np.float32)}))
    problem = px.Problem(network, px.Categorical())
    assert gauss_newton.layers_among(problem, jax.ShapeDtypeStruct((3,), jnp.float32), [0]) == {}
