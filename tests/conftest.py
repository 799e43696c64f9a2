import gc
import re

import compilation  # noqa: F401  first: it sets what JAX reads when it is imported
import pytest


def pytest_ignore_collect(collection_path, config):
    """With `-m quick` or `-m 'as_shipped and ...'`, files that do not mention the marker are not imported."""
    required = re.fullmatch(r"(quick|as_shipped)( and (?!.*\bor\b).*)?", config.option.markexpr)
    if required and re.fullmatch(r"test_.*\.py", collection_path.name):
        return required[1] not in collection_path.read_text(encoding="utf-8") or None
    return None


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
