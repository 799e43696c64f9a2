"""Studies: what the papers claim, run again by one command, with a verdict on each claim. One file per study."""

import difflib

from posteriax.studies.bnn_posteriors import STUDY as BNN_POSTERIORS
from posteriax.studies.claims import Verdict as Verdict
from posteriax.studies.k_tied import STUDY as K_TIED
from posteriax.studies.liberty_or_depth import STUDY as LIBERTY_OR_DEPTH
from posteriax.studies.page import counts_of as counts_of
from posteriax.studies.page import front_page as front_page
from posteriax.studies.page import write_page as write_page
from posteriax.studies.rank_1 import STUDY as RANK_1
from posteriax.studies.results import Results as Results
from posteriax.studies.results import ResultsError as ResultsError
from posteriax.studies.results import read_results as read_results
from posteriax.studies.running import MissingData as MissingData
from posteriax.studies.running import run_study as run_study
from posteriax.studies.running import verdicts as verdicts
from posteriax.studies.study import SCALES as SCALES
from posteriax.studies.study import Cell as Cell
from posteriax.studies.study import Claim as Claim
from posteriax.studies.study import Study as Study
from posteriax.studies.study import Table as Table
from posteriax.studies.variance_networks import STUDY as VARIANCE_NETWORKS
from posteriax.studies.workbench import Workbench as Workbench

_ALL: tuple[Study, ...] = (LIBERTY_OR_DEPTH, K_TIED, RANK_1, BNN_POSTERIORS, VARIANCE_NETWORKS)
STUDIES = {study.name: study for study in _ALL}


def find_study(name: str) -> Study:
    """A study by its name.

    Raises:
        ValueError: if there is none, with the nearest names.
    """
    if name not in STUDIES:
        close = difflib.get_close_matches(name, STUDIES, 1, cutoff=0.4)
        hint = f"Did you mean {close[0]}?" if close else f"There are {', '.join(STUDIES)}."
        raise ValueError(f"there is no study {name!r}. {hint}")
    return STUDIES[name]
