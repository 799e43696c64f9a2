"""Does this installation compute correctly? `posteriax doctor` compares small compiled programs with float64 NumPy."""

from posteriax.cli.doctor.examination import CheckResult as CheckResult
from posteriax.cli.doctor.examination import Examination as Examination
from posteriax.cli.doctor.examination import examine as examine
from posteriax.cli.doctor.examination import print_report as print_report
from posteriax.cli.doctor.examination import run_doctor as run_doctor
