"""The k-tied Normal (Swiatkowski et al. 2020): standard deviations of trained mean-field posteriors have low rank.

    mean-field    W_ij ~ N(M_ij, A_ij^2)          A = sum_r gamma_r u_r v_r'       share of r: gamma_r^2 / sum gamma^2
    k-tied        the same with A = U V',         U (m x k), V (n x k) positive, learned as their logarithms

The paper trains mean-field posteriors of an MLP on MNIST, a LeNet on CIFAR-100 and an LSTM on IMDB, looks at the
singular values of A and of the means M, truncates A to rank k, and then trains k-tied posteriors from scratch. Here:

- one cell for each network, family and seed trains to convergence and measures scores, parameters and, if mean-field,
  spectra and truncations;
- cells of the MLP begin with the paper's first steps (Adam, standard deviations of 0.01, one draw per batch), for the
  signal-to-noise ratio of gradients, -ELBO by step and the time of a step, and go on from there;
- the MLP is trained once more with the He-scaled prior of the paper's appendix B, which has it for a ResNet-18.
"""

from posteriax.studies.k_tied import experiments, report
from posteriax.studies.study import make_study

STUDY = make_study("k-tied", __file__, experiments.SCALES, experiments.cells, experiments.run, report)
