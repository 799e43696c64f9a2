"""Does this installation compute rightly? `posteriax doctor` compares small compiled programs with float64 NumPy."""

from posteriax.doctor.examination import Examination as Examination
from posteriax.doctor.examination import Finding as Finding
from posteriax.doctor.examination import examine as examine
from posteriax.doctor.report import print_report as print_report
