"""What the papers look at, as functions of a posterior."""

from posteriax.analysis.switches import permute as permute
from posteriax.analysis.switches import zero_mean as zero_mean
from posteriax.analysis.truncation import truncate as truncate
