"""A distilled network says what its teacher says; what it says is that of a Dirichlet or of one Gaussian."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import dirichlet

import posteriax as px
from posteriax.likelihoods import DirichletClasses, NormalParts
from posteriax.networks.widening import widening_for
from posteriax.posterior import DistilledPosterior, DrawsPosterior, Trace
from posteriax.problem import Latents

RNG = np.random.default_rng(0)


def test_a_dirichlet_predictive_has_the_moments_of_its_draws():
    alpha = np.array([[0.5, 1.0, 2.5], [20.0, 5.0, 1.0]])
    predictive = DirichletClasses().predictive(np.log(alpha)[None].astype(np.float32), {})
    draws = np.stack([dirichlet(a).rvs(200_000, random_state=0) for a in alpha], axis=1)
    # Monte-Carlo errors: at most std / sqrt(200,000) < 7e-4 of a mean; 4 of them
    np.testing.assert_allclose(predictive.probs, draws.mean(axis=0), atol=3e-3)
    np.testing.assert_allclose(predictive.std, draws.std(axis=0), atol=3e-3)
    noise = -np.where(draws > 0, draws * np.log(np.maximum(draws, 1e-300)), 0.0).sum(axis=-1).mean(axis=0)
    np.testing.assert_allclose(predictive.entropy() - predictive.mutual_information(), noise, atol=3e-3)
    np.testing.assert_allclose(predictive.quantile([0.1, 0.9]), np.quantile(draws, [0.1, 0.9], axis=0), atol=5e-3)
    reduced = DirichletClasses().reduced_predictive(DirichletClasses().sums({}, np.log(alpha)), (2, 3))
    np.testing.assert_allclose(reduced.mutual_information(), predictive.mutual_information(), atol=1e-6)


def linear(w, x):
    return jnp.tanh(x @ w["a"]) @ w["b"]


def with_bias(w, x):
    return linear(w, x) + w["bias"]


def ensemble(likelihood, outputs, draws=5):
    shapes = {"a": (2, 12), "b": (12, outputs)}
    weights = {name: RNG.normal(size=(draws, *shape)).astype(np.float32) for name, shape in shapes.items()}
    problem = px.Problem((linear, jax.tree.map(lambda a: a[0], weights)), likelihood)
    latents = Latents(weights, {name: jnp.full(draws, value) for name, value in likelihood.latents().items()})
    return DrawsPosterior(problem, Trace({}), jax.tree.map(lambda a: jnp.asarray(a)[None], latents))


X = RNG.normal(size=(400, 2)).astype(np.float32)


@pytest.mark.parametrize("copies", [1, 3])
def test_a_widened_network_has_copies_of_its_last_layer_only(copies):
    net = px.network((linear, {"a": jnp.ones((2, 12)), "b": jnp.ones((12, 1))}))
    widening = widening_for(net, X, copies)
    if copies == 1:
        assert widening is None
        return
    wide = widening.apply_to(net)
    assert (widening.head, wide.params["a"].shape, wide.params["b"].shape) == (("b",), (2, 12), (copies, 12, 1))
    np.testing.assert_allclose(
        wide.apply(wide.params, X), np.repeat(net.apply(net.params, X), copies, axis=1), rtol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize(("likelihood", "outputs"), [(px.Categorical(), 3), (px.Normal(0.5), 1), (px.Bernoulli(), 1)])
def test_a_student_is_near_its_teacher_and_a_posterior_like_any_other(likelihood, outputs, tmp_path):
    teacher = ensemble(likelihood, outputs)
    expected = teacher.predict(X)
    classes = expected.confidence() is not None
    y = RNG.integers(2, size=400) if classes else expected.mean[:, 0] + RNG.normal(size=400)
    student = px.distil(teacher, X, held_out=(X, y), shifted={"far": 3 * X}, net=wider(student_outputs(expected)))
    measured = student.distances["held-out"]
    # a network of 64 units learns these means to a few hundredths of their standard deviation; the teacher's mixture of
    # five narrow Gaussians is another matter
    assert measured["total variation" if classes else "mean"] < 0.05, student.report()
    if not classes:
        assert (measured["noise ratio"], measured["knowledge ratio"]) == pytest.approx((1, 1), abs=0.1)
    assert set(student.distances) == {"held-out", "far"} and isinstance(student, DistilledPosterior)

    student.save(tmp_path / "student.posterior")
    again = px.load(tmp_path / "student.posterior", wider(student_outputs(expected)))
    predictive = again.predict(X)
    np.testing.assert_array_equal(predictive.mean, student.predict(X).mean)
    assert again.distances == student.distances and again.conformal == student.conformal
    # calibrated and measured on the same targets: at least the level, by construction
    calibrated = again.conformal
    if classes:
        assert np.take_along_axis(calibrated.sets(predictive), y[:, None], axis=1).mean() >= 0.9
    else:
        low, high = calibrated.interval(predictive)
        assert ((low[:, 0] <= y) & (y <= high[:, 0])).mean() >= 0.9
    pytest.importorskip("flatbuffers")
    assert student.export(tmp_path / "student.stablehlo", X).largest_difference < 1e-5


def student_outputs(predictive):
    return predictive.probs.shape[1] if predictive.confidence() is not None else 3


def wider(outputs):
    a, b = RNG.normal(size=(2, 64)), 0.1 * RNG.normal(size=(64, outputs))
    return with_bias, {"a": np.float32(a), "b": np.float32(b), "bias": np.zeros(outputs, np.float32)}


def test_the_posteriors_own_network_is_distilled_and_read_back(tmp_path):
    teacher = ensemble(px.likelihoods.InUnits(px.Normal(0.5), 100.0, 10.0), 1)
    student = px.distil(teacher, X, steps=20)
    assert student.predict(X).mean.shape == (400, 1) and abs(student.predict(X).mean.mean() - 100) < 20
    np.testing.assert_allclose(
        student.predict(X).std ** 2, student.predict(X).noise ** 2 + student.predict(X).knowledge ** 2, rtol=1e-5
    )
    student.save(tmp_path / "student.posterior")
    again = px.load(tmp_path / "student.posterior", teacher.problem.network)
    np.testing.assert_array_equal(again.predict(X).std, student.predict(X).std)
    assert "knowledge ratio" in again.report()


def test_bad_input_is_one_line():
    teacher = ensemble(px.Categorical(), 3)
    with pytest.raises(ValueError, match=r"net has outputs of shape \(2,\) per example, but a student needs \(3,\)"):
        px.distil(teacher, X, net=wider(2))
    with pytest.raises(TypeError, match="not for counts"):
        px.distil(ensemble(px.Poisson(), 1), X)
    with pytest.raises(ValueError, match="needs three outputs per target"):
        NormalParts().check(jax.ShapeDtypeStruct((4, 2), np.float32), np.zeros(4))
