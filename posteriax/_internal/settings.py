"""Settings as plain data: likelihoods, priors and families to JSON and back, without running any code.

Deriving from :class:`Savable` is all it takes for a class to be saved. Only classes that are already imported can be
loaded, so a file cannot cause anything to be imported or run.
"""

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np
import numpyro.distributions as dist

Json = Any  # what the json module writes and reads

_CLASSES: dict[str, type["Savable"]] = {}


class Savable:
    """A frozen dataclass of plain settings that can be saved with a posterior.

    Classes of posteriax are saved as "namespace.Name", others as "namespace.module:Name".
    """

    saved_as: ClassVar[str]
    _namespace: ClassVar[str]

    def __init_subclass__(cls, namespace: str | None = None, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if namespace is not None:
            cls._namespace = namespace
            return
        ours = cls.__module__.split(".")[0] == __name__.split(".")[0]
        cls.saved_as = f"{cls._namespace}.{cls.__name__ if ours else f'{cls.__module__}:{cls.__qualname__}'}"
        _CLASSES[cls.saved_as] = cls

    def to_plain(self) -> dict[str, Any]:
        """JSON-ready data that :func:`from_plain` turns back into an equal object."""
        return {"kind": self.saved_as, **{f.name: _number(getattr(self, f.name)) for f in fields(self)}}  # type: ignore[arg-type]

    @classmethod
    def from_settings(cls, **settings: Any) -> Self:
        return cls(**settings)


def to_plain(value: object) -> Json:
    """JSON-ready data for a setting, or a dictionary of settings by path.

    >>> from posteriax import priors as p
    >>> to_plain(p.Normal(scale=0.3))
    {'kind': 'priors.Normal', 'scale': 0.3, 'loc': 0.0}
    """
    if isinstance(value, Mapping):
        return {"kind": "by path", "patterns": {pattern: to_plain(setting) for pattern, setting in value.items()}}
    if isinstance(value, Savable):
        return value.to_plain()
    if isinstance(value, dist.Distribution):
        name = type(value).__name__
        if _numpyro_class(name) is not type(value):
            raise TypeError(
                f"a posterior with the NumPyro prior {name} cannot be saved, because {name} is not defined by plain "
                f"arrays: derive a prior from p.Prior that returns it"
            )
        arguments = {key: np.asarray(getattr(value, key)).tolist() for key in value.arg_constraints}
        return {"kind": f"numpyro.{name}", **arguments}
    raise TypeError(
        f"a posterior with the setting {value!r} cannot be saved: derive {type(value).__name__} from posteriax's "
        f"Likelihood, Prior or Family"
    )


def from_plain(plain: Json) -> Any:
    """The setting that `to_plain` described.

    >>> import posteriax
    >>> from_plain({"kind": "families.KTied", "k": 2, "scale": 0.01})
    KTied(k=2, scale=0.01)
    """
    plain = dict(plain)
    kind = plain.pop("kind")
    if kind == "by path":
        return {pattern: from_plain(setting) for pattern, setting in plain["patterns"].items()}
    if kind.startswith("numpyro.") and (known := _numpyro_class(kind.removeprefix("numpyro."))):
        return known(**{key: np.asarray(v) for key, v in plain.items()})
    if kind not in _CLASSES:
        module = kind.partition(".")[2].partition(":")[0] if ":" in kind else ""
        raise ValueError(
            f"unknown setting {kind!r}" + (f": import {module}, which defines it, before loading" if module else "")
        )
    return _CLASSES[kind].from_settings(**plain)


def _numpyro_class(name: str) -> type[dist.Distribution] | None:
    """The NumPyro distribution of that name, if its arguments are arrays and all of them define it; otherwise None."""
    known: Any = getattr(dist, name, None)
    if not (isinstance(known, type(dist.Distribution)) and issubclass(known, dist.Distribution)):
        return None
    arguments = {n: a.default for n, a in inspect.signature(known).parameters.items() if n != "validate_args"}
    alternatives = None in arguments.values()  # one of several, as a covariance or its inverse
    return known if set(arguments) == set(known.arg_constraints) and not alternatives else None


def _number(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value
