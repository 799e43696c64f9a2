"""What Laplace's approximation says about the prior: the evidence, and how many weights the data determine.

    log p(D) ~ log p(D | w*) + log p(w*) + (d / 2) log 2 pi - (1/2) log det(G + P)        P: the prior's precisions
    gamma_i = [ (G + P)^-1 G ]_ii                     near 1 for a weight that the data determine, near 0 for one that
                                                      keeps its prior

The curvature G of the data is held fixed, so that both are known for any prior. (MacKay 1992)
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import dtrtri

from posteriax.methods.curvature.gauss_newton import Kronecker
from posteriax.methods.curvature.structures import Curvature, CurvaturePlan, as_matrix


class Precision(NamedTuple):
    """G + P.

    Args:
        log_det: its log determinant.
        effective: gamma, summed over the weights of each leaf, by the index of the leaf.
    """

    log_det: float
    effective: dict[int, float]


def precision_from_rows(
    rows: np.ndarray, precisions: Sequence[np.ndarray]
) -> tuple[Precision, Callable[[np.ndarray], np.ndarray]]:
    """G + P for G = R'R over all leaves, and a function that solves (G + P) x = b.

    Decomposes the smaller of R'R and RR', in units of the prior, where both are at least the identity.
    """
    sizes = [precision.size for precision in precisions]
    flat = np.concatenate([precision.reshape(-1) for precision in precisions])
    unit = 1 / np.sqrt(flat)
    scaled = np.asarray(rows, np.float64) * unit
    wide = scaled.shape[0] < scaled.shape[1]
    inner = scaled @ scaled.T if wide else scaled.T @ scaled
    inner[np.diag_indices_from(inner)] += 1
    factor = cholesky(inner, lower=True)
    if wide:
        effective = np.square(solve_triangular(factor, scaled, lower=True)).sum(axis=0)
    else:
        effective = 1 - np.square(dtrtri(factor, lower=1)[0]).sum(axis=0)

    def solve(b: np.ndarray) -> np.ndarray:
        in_units = unit * b
        if wide:
            return unit * (in_units - scaled.T @ cho_solve((factor, True), scaled @ in_units))
        return unit * cho_solve((factor, True), in_units)

    by_leaf = np.split(effective, np.cumsum(sizes)[:-1])
    log_det = float(np.log(flat).sum() + 2 * np.log(np.diag(factor)).sum())
    return Precision(log_det, {i: float(leaf.sum()) for i, leaf in enumerate(by_leaf)}), solve


def precision_by_plan(plan: CurvaturePlan, curvature: Curvature, precisions: Sequence[np.ndarray]) -> Precision:
    """G + P for the parts of a plan, which are independent of each other."""
    log_det, effective = 0.0, dict[int, float]()
    full, diagonal, layers = curvature
    for group, matrix in zip(plan.full, full, strict=True):
        # any square root of the curvature has its rows
        values, vectors = np.linalg.eigh(as_matrix(matrix))
        roots = (vectors * np.sqrt(np.maximum(values, 0.0))).T
        precision, _ = precision_from_rows(roots, [precisions[i] for i in group])
        log_det += precision.log_det
        effective |= {leaf: precision.effective[i] for i, leaf in enumerate(group)}
    for i, entries in zip(plan.diagonal, diagonal, strict=True):
        along = np.asarray(entries, np.float64)
        log_det += float(np.log(along + precisions[i]).sum())
        effective[i] = float((along / (along + precisions[i])).sum())
    for i, sums in layers.items():
        along, mean = kronecker_eigenvalues(sums), precisions[i].mean()
        log_det += float(np.log(along + mean).sum())
        effective[i] = float((along / (along + mean)).sum())
    return Precision(log_det, effective)


def kronecker_eigenvalues(sums: Kronecker) -> np.ndarray:
    """The eigenvalues of a layer's Kronecker-factored curvature."""
    inputs = np.linalg.eigvalsh(np.asarray(sums.inputs, np.float64) / float(sums.positions))
    outputs = np.linalg.eigvalsh(np.asarray(sums.outputs, np.float64))
    return np.maximum(np.outer(inputs, outputs), 0.0).reshape(-1)
