"""Settings of a class derived from posteriax's own can be saved, wherever the class is defined."""

import json
from dataclasses import dataclass

import numpy as np
import numpyro.distributions as dist
import pytest

from posteriax import priors as p
from posteriax._internal.settings import Savable, from_plain, to_plain

pytestmark = pytest.mark.quick


@dataclass(frozen=True)
class Cauchy(p.Prior):
    scale: float = 1.0

    def distribution(self, leaf):
        return dist.Cauchy(0.0, self.scale)


def test_a_strangers_prior_survives_the_way_to_plain_data_and_back():
    prior = {"**": Cauchy(0.3), "**/bias": p.Normal(scale=0.1)}
    assert from_plain(to_plain(prior)) == prior


def test_a_strangers_class_does_not_take_the_place_of_posteriaxs_own():
    @dataclass(frozen=True)
    class Normal(p.Prior):
        scale: float = 2.0

        def distribution(self, leaf):
            return dist.Normal(0.0, self.scale)

    assert type(from_plain({"kind": "priors.Normal", "scale": 0.3})) is p.Normal
    assert type(from_plain(to_plain(Normal()))) is Normal


def test_a_class_that_is_not_imported_is_named_with_its_module():
    with pytest.raises(ValueError, match=r"unknown setting 'priors.lab.priors:Odd': import lab.priors"):
        from_plain({"kind": "priors.lab.priors:Odd", "scale": 1.0})


@pytest.mark.parametrize("prior", [dist.Cauchy(0.0, 0.3), dist.SoftLaplace(0.0, np.array([0.1, 0.2])), dist.Gumbel()])
def test_numpyro_distributions_defined_by_arrays_are_saved(prior):
    again = from_plain(json.loads(json.dumps(to_plain(prior))))
    assert type(again) is type(prior)
    np.testing.assert_allclose(again.log_prob(0.3), prior.log_prob(0.3), rtol=1e-6)


@pytest.mark.parametrize("prior", [dist.MultivariateNormal(np.zeros(2), np.eye(2)), dist.Normal().expand((3,))])
def test_other_distributions_are_refused_when_saving_and_in_files(prior):
    name = type(prior).__name__
    with pytest.raises(TypeError, match=f"{name} is not defined by plain arrays: derive a prior from p.Prior"):
        to_plain(prior)
    for kind in (name, "Distribution", "kl_divergence", "constraints"):
        with pytest.raises(ValueError, match="unknown setting"):
            from_plain({"kind": f"numpyro.{kind}"})


def test_what_does_not_derive_from_a_savable_class_says_what_to_do():
    class Odd:
        def distribution(self, leaf):
            return dist.Normal()

    assert not isinstance(p.as_prior(Odd()), Savable)
    with pytest.raises(TypeError, match="derive Odd from"):
        to_plain(Odd())


@pytest.mark.parametrize("name", [name for name in p.__all__ if name not in ("Leaf", "Prior") and name[0].isupper()])
def test_every_prior_survives_the_way_to_plain_data_and_back(name):
    """Deriving from Prior is all it takes: nothing lists the priors that can be saved."""
    made = p.EmpCov.from_covariance([[2.0, 1.0], [1.0, 2.0]]) if name == "EmpCov" else getattr(p, name)()
    again = from_plain(to_plain(made))
    assert type(again) is type(made)
    assert to_plain(again) == to_plain(made)
