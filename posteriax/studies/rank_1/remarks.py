"""What stands on the page in words: what was done and cut, and what was found out about claims that do not hold."""

SUMMARY = """\
Every weight matrix is multiplied by random factors for its inputs and its outputs, so that a mixture of four networks
has few more parameters than one. At laptop scale the paper's tables are in miniature: a Wide ResNet of depth 10 with 8,
16 and 32 channels on 2,000 images of CIFAR-10 at half the resolution, an MLP 784-100-100-10 on 3,000 images of
Fashion-MNIST, both for about ten epochs and without augmentation, and an LSTM of 19 units on 4,000 stays of PhysioNet
2012 in place of MIMIC-III, which is not public. So small networks have a larger part of their parameters in the
factors; the deterministic network and BatchEnsemble are widened by as much, to the same number within 1 %. Absolute
figures do not compare with the paper's.

All methods have the same number of steps and posteriax's own optimisers. The scales of priors (weight decay), the
factors' start and prior, and the dropout rate were chosen by the NLL on 2,000 training images of Fashion-MNIST that
were left out, with another seed: about ten settings were tried for the rank-1 mixtures, three or four for each of the
others, which favours rank-1. Those of the LSTM were chosen on 1,000 stays; on CIFAR-10 only one scale of the prior was
tried, the same for all methods. KL annealing also anneals the prior of the shared weights, so that rank-1 mixtures have
less weight decay early in the run than the others. A draw of the factors serves all test images, where
the paper draws for each: four draws of each component, for Gaussian factors too. Factors on one side only leave out the
other side; in the paper it is a point estimate. Corruptions are measured on 40 test images for each of the 15 kinds and
5 severities; the ECE of a kind is that of its 200 images, which is biased upwards by their number, for all methods
alike. Mixtures of other sizes see 256 rows per step too, for as many steps, so that larger ones see fewer epochs; the
paper tunes their length. The paper's ImageNet, CIFAR-100, Bayesian embeddings and measurements at several checkpoints
are left out.
"""

REMARKS: dict[str, str] = {}
