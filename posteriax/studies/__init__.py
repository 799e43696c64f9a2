"""Studies: what the papers claim, run again by one command, with a verdict on each claim. One folder per paper."""

import difflib
import importlib
import pkgutil

from posteriax.studies.claims import Claim as Claim
from posteriax.studies.claims import Paper as Paper
from posteriax.studies.claims import read_paper as read_paper
from posteriax.studies.front import front_page as front_page
from posteriax.studies.front import write_front as write_front
from posteriax.studies.judging import Verdict as Verdict
from posteriax.studies.page import count_verdicts as count_verdicts
from posteriax.studies.page import write_page as write_page
from posteriax.studies.registration import revisions as revisions
from posteriax.studies.results import Conditional as Conditional
from posteriax.studies.results import Measure as Measure
from posteriax.studies.results import Parts as Parts
from posteriax.studies.results import Results as Results
from posteriax.studies.results import ResultsError as ResultsError
from posteriax.studies.results import entry as entry
from posteriax.studies.results import read_results as read_results
from posteriax.studies.running import MissingData as MissingData
from posteriax.studies.running import run_study as run_study
from posteriax.studies.study import SCALES as SCALES
from posteriax.studies.study import Cell as Cell
from posteriax.studies.study import Study as Study
from posteriax.studies.study import verdicts as verdicts
from posteriax.studies.tables import PageTable as PageTable
from posteriax.studies.workbench import Workbench as Workbench

# every folder beside this file is a study
_FOLDERS = [module.name for module in pkgutil.iter_modules(__path__) if module.ispkg]


def _study_of(folder: str) -> Study:
    module = importlib.import_module(f"{__name__}.{folder}")
    if not hasattr(module, "STUDY"):
        raise ImportError(f"{module.__file__} must define STUDY: see make_study")
    return module.STUDY


STUDIES = {study.name: study for study in map(_study_of, _FOLDERS)}


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
