import gc

import compilation  # noqa: F401  first: it sets what JAX reads when it is imported
import pytest


def pytest_collection_finish():
    # what has been imported stays, and compiled programs are full of cycles: look for garbage less often
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="session")
def two_devices():
    """For tests that need two devices; POSTERIAX_TESTS_DEVICES says how many there are."""
    import jax

    if jax.device_count() < 2:
        pytest.skip("needs two devices")


@pytest.fixture(scope="session")
def moons():
    import posteriax as px

    return px.data.two_moons(train=60, test=40)
