"""A prior of a stranger, in this file alone: Laplace, with its cross-entropy with a Gaussian in closed form."""

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import posteriax as px
from posteriax import families as q
from posteriax import priors as p


class LaplaceInClosedForm(dist.Laplace):
    cross_entropy_note = ""

    def gaussian_cross_entropy(self, mean, variance):
        """log(2 s) + E|w| / s, with E|w| that of a folded normal."""
        z = mean / jnp.sqrt(2 * variance)
        absolute = jnp.sqrt(2 * variance / math.pi) * jnp.exp(-jnp.square(z)) + mean * jax.scipy.special.erf(z)
        return (jnp.log(2 * self.scale) + absolute / self.scale).sum()


@dataclass(frozen=True)
class FoldedLaplace(p.Prior):
    scale: float = 0.5

    def distribution(self, leaf):
        return LaplaceInClosedForm(0.0, self.scale)


def test_its_closed_form_replaces_the_draw():
    leaf = p.Leaf("w", (3, 4))
    prior = FoldedLaplace(0.5).distribution(leaf)
    family = q.Normal(0.3)
    variational = family.init(jax.random.key(0), jax.random.normal(jax.random.key(1), leaf.shape), leaf)
    keys = jax.random.split(jax.random.key(2), 20_000)
    plain = np.asarray(jax.vmap(lambda key: family.kl(variational, dist.Laplace(0.0, 0.5), key))(keys))
    exact = [float(family.kl(variational, prior, key)) for key in keys[:2]]
    assert exact[0] == exact[1]
    assert abs(exact[0] - plain.mean()) < 5 * plain.std() / math.sqrt(len(plain))
    assert family.kl_note(prior) == family.kl_note(prior.expand(leaf.shape)) == ""
    assert "one draw" in family.kl_note(dist.Laplace(0.0, 0.5))


@pytest.mark.parametrize("method", [px.VI(q.Normal()), px.MAP()], ids=["VI", "MAP"])
def test_it_trains_and_is_saved(method, tmp_path):
    train, (x, _) = px.data.two_moons(train=40, test=20)
    net = eqx.nn.Linear(2, 2, key=jax.random.key(0))
    problem = px.Problem(net, px.Categorical(), {"weight": FoldedLaplace(0.3), "bias": p.Normal()})
    posterior = px.fit(problem, train, method, steps=20, key=0)
    assert not any("one draw" in note for note in posterior.trace.notes)
    posterior.save(tmp_path / "a.posterior")
    again = px.load(tmp_path / "a.posterior", net)
    assert again.problem.prior == problem.prior
    np.testing.assert_array_equal(again.predict(x, draws=3).probs, posterior.predict(x, draws=3).probs)
