import gc

import compilation  # noqa: F401  first: it sets what JAX reads when it is imported
import pytest


def pytest_collection_finish():
    # what has been imported stays, and compiled programs are full of cycles: look for garbage less often
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config, items):
    """Cases that a test's `every_day` does not name are slow; a name that no case has is an error."""
    unused = {}
    for item in items:
        named = item.get_closest_marker("every_day")
        if named is not None:
            left = unused.setdefault(item.nodeid.partition("[")[0], set(named.args))
            left.discard(item.callspec.id)
            if item.callspec.id not in named.args:
                item.add_marker(pytest.mark.slow)
    misnamed = {test: sorted(names) for test, names in unused.items() if names}
    if misnamed and not any("::" in path for path in config.args):  # with "::" not all cases are collected
        raise pytest.UsageError(f"every_day names cases that do not exist: {misnamed}")


@pytest.fixture(scope="session")
def moons():
    import posteriax as px

    return px.data.two_moons(train=60, test=40)
