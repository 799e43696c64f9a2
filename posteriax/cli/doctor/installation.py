"""What is installed, and on what it runs."""

import importlib.metadata
import os
import platform
from collections import Counter
from pathlib import Path

PACKAGES = ("jax", "jaxlib", "numpy", "equinox", "quax", "optax", "blackjax", "numpyro", "safetensors", "flax", "scipy")


def describe_installation() -> dict[str, str]:
    """Versions, devices, cores and memory, as text. Starts JAX's backend."""
    import jax
    import jaxlib.version

    from posteriax import __version__
    from posteriax._internal import jax_release

    kinds = Counter(device.device_kind for device in jax.devices())
    facts = {
        "posteriax": __version__,
        "python": f"{platform.python_version()}, {platform.system()} {platform.machine()}",
        "packages": ", ".join(f"{name} {version}" for name, version in versions().items()),
        "devices": ", ".join(f"{count} {kind}" for kind, count in kinds.items()),
        "cores": str(os.cpu_count()),
        "memory": memory(),
    }
    flags = jax_release.environment_without_guard()["XLA_FLAGS"]
    guard = f"posteriax switches off the YNN fusion, which is wrong on CPUs in jaxlib {jaxlib.version.__version__}"
    facts |= {"XLA_FLAGS": flags} if flags else {}
    return facts | ({"guard": guard} if jax_release.is_guarded() else {})


def versions() -> dict[str, str]:
    """Versions of the installed packages that results depend on."""
    installed = {package.name: package.version for package in importlib.metadata.distributions()}
    return {name: installed[name] for name in PACKAGES if name in installed}


def memory() -> str:
    """The machine's memory, total and free."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if hasattr(os, "sysconf") else None
    if total is None:
        return "unknown"
    table = Path("/proc/meminfo")
    lines = table.read_text().splitlines() if table.exists() else []
    free = [int(line.split()[1]) / 2**20 for line in lines if line.startswith("MemAvailable")]
    return f"{total:.1f} GB" + (f", {free[0]:.1f} GB free" if free else "")
