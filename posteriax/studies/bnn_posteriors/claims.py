"""What the paper claims, in the order of the page."""

from posteriax.studies.bnn_posteriors.claims_of_posteriors import CORRUPTED, FIDELITIES, MIXING, PREDICTIONS
from posteriax.studies.bnn_posteriors.claims_of_targets import NOISE, PRIORS, REGRESSION, TEMPERATURES
from posteriax.studies.bnn_posteriors.remarks import REMARKS
from posteriax.studies.study import with_remarks

CLAIMS = with_remarks(
    (*MIXING, *PREDICTIONS, *FIDELITIES, *CORRUPTED, *NOISE, *TEMPERATURES, *PRIORS, *REGRESSION), REMARKS
)
