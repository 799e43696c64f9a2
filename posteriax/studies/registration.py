"""Pre-registration: what is judged, and how, is written into the results when a run starts, and compared afterwards.

A claim is registered with its statistic, its bounds, its kind and its family; the settings of the scale with a hash.
`study report` compares both with the claims and settings of today, and pages say what was revised after the run.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from posteriax.studies.judging import Verdict, describe_rule
from posteriax.studies.results import Json, Results, plain
from posteriax.studies.study import Settings, Study, run_verdicts

AGREES = 1e-6  # relative difference of an effect that was stored and the same one measured again


def register(study: Study, settings: Settings) -> dict[str, Json]:
    """What a run of the study commits to.

    Args:
        study: whose claims.
        settings: of the scale that is run.
    """
    claims = registered_claims(study)
    return {"claims": claims, "claims_sha256": digest(claims), "settings_sha256": digest(plain(asdict(settings)))}


def registered_claims(study: Study) -> list[dict[str, str]]:
    """The parts of the claims that decide verdicts."""
    return [
        {
            "name": claim.name,
            "statistic": claim.formula or claim.quantity,
            "rule": describe_rule(claim.above, claim.below),
            "kind": claim.kind,
            "family": claim.family,
        }
        for claim in study.claims
    ]


def digest(content: Json) -> str:
    """SHA-256 of plain data.

    >>> digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})
    True
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


@dataclass(frozen=True)
class Revisions:
    """How the claims differ from those that a run started with.

    Args:
        registered: whether the results say what the run started with; if not, the stored verdicts are compared, which
            have bounds and effects but neither kind nor family.
        added, withdrawn: names of claims.
        changed: what is different, by name.
        settings: whether the settings of the scale are others today.
    """

    registered: bool
    added: tuple[str, ...]
    withdrawn: tuple[str, ...]
    changed: Mapping[str, str]
    settings: bool

    def __bool__(self) -> bool:
        return bool(self.added or self.withdrawn or self.changed)

    @property
    def summary(self) -> str:
        """In one line.

        >>> Revisions(True, ("a",), (), {"b": "bounds"}, False).summary
        '1 claim added, 0 withdrawn, 1 changed'
        """
        plural = "" if len(self.added) == 1 else "s"
        return f"{len(self.added)} claim{plural} added, {len(self.withdrawn)} withdrawn, {len(self.changed)} changed"


def revisions(study: Study, results: Results) -> Revisions:
    """What was revised after the run that gave these results."""
    now = {claim["name"]: claim for claim in registered_claims(study)}
    if results.registered is None:
        stored = {verdict["claim"]: verdict for verdict in results.judged}
        found = run_verdicts(study, results)
        changed = {name: _difference(stored[name], found[name]) for name in now if name in stored}
    else:
        stored = {claim["name"]: claim for claim in results.registered["claims"]}
        changed = {
            name: ", ".join(part for part in claim if claim[part] != stored[name][part])
            for name, claim in now.items()
            if name in stored
        }
    settings = study.scales.get(results.scale)
    return Revisions(
        results.registered is not None,
        tuple(name for name in now if name not in stored),
        tuple(name for name in stored if name not in now),
        {name: what for name, what in changed.items() if what},
        settings is not None and plain(asdict(settings)) != results.settings,
    )


def _difference(stored: Mapping[str, Json], found: Verdict) -> str:
    """Between a stored verdict and the one of today, in bounds and in the effect that was measured."""
    before = np.nan if stored["effect"] is None else stored["effect"]
    same_effect = np.isclose(before, found.effect, rtol=AGREES, atol=0, equal_nan=True)
    changes = {"rule": stored["rule"] != found.rule, "statistic": not same_effect}
    return ", ".join(name for name, changed in changes.items() if changed)
