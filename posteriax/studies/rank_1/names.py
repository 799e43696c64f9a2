"""The methods that the study compares, by the name that the tables have.

    deep ensemble                    K networks of the same size; one of them is the deterministic baseline
    deep ensemble, equal parameters  K smaller networks with as many parameters together as the rank-1 network
    BatchEnsemble                    rank-1 factors without noise
    MC dropout, mean-field           one network with random weights

All others are rank-1 mixtures.
"""

DETERMINISTIC = "deterministic"  # no run of its own: one member of the deep ensemble
DEEP, EQUAL = "deep ensemble", "deep ensemble, equal parameters"
BATCH_ENSEMBLE, DROPOUT, MEAN_FIELD = "BatchEnsemble", "MC dropout", "mean-field"
GAUSSIAN, CAUCHY = "rank-1 Gaussian", "rank-1 Cauchy"
INPUT, OUTPUT = "factors on inputs", "factors on outputs"
MIXTURE = "log-mixture likelihood"
LOG_NORMAL, HALF_CAUCHY = "log-normal factors", "half-Cauchy factors"
TABLE = (DEEP, EQUAL, BATCH_ENSEMBLE, DROPOUT, MEAN_FIELD, GAUSSIAN, CAUCHY)
ABLATIONS = (INPUT, OUTPUT, MIXTURE, LOG_NORMAL, HALF_CAUCHY)
MORTALITY = (DEEP, BATCH_ENSEMBLE, MEAN_FIELD, GAUSSIAN, CAUCHY)


def size_name(components: int) -> str:
    """The name of the mixture of another size.

    >>> size_name(8)
    'K = 8'
    """
    return f"K = {components}"
