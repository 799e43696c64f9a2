"""What stands on the page in words: what was done and cut, and what was found out about claims that do not hold."""

SUMMARY = """\
Full-batch HMC on networks that are small enough for it to mix. All methods are compared with it on Fashion-MNIST,
averaged down to 14 x 14 pixels: an MLP with 16 hidden units (3,322 weights) on 300 images, and a CNN with two
convolutions of 3 and 6 channels (679 weights) on 200. Every seed has training and test images of its own (500 for
testing; 100 under each of 15 corruptions at severities 3 and 5, before they are averaged down). HMC is the paper's:
unit masses, a fixed step size, here 0.01, and trajectories of pi / 2 times the prior's scale, 50 and 71 leapfrogs, with
every proposal accepted or rejected, in four chains. They start at members of the deep ensemble, in the other
experiments at random weights. Temperature, prior, trajectory and step size vary on the MLP, instead of a ResNet-20 on
CIFAR-10 and a CNN-LSTM on IMDB; noise on the pixels and EmpCov are on an MLP of the same size with 300 images of MNIST,
whose pixels are not centred, so that black is 0. Learning rates and step sizes, and the variance of the prior, were
chosen on the MLP by the likelihood of training images that were held out, with another seed; the CNN has the same ones,
and a prior of variance 1/5. A deep ensemble has ten members, five for UCI; MAP is the average over the scores of its
members.

UCI has the paper's hidden layer of 50 units on splits 0 to 4 of the 20, with at most 1,000 training rows, priors N(0,
1) and one learned scale of the noise. The paper's network predicts the noise of each row; where it almost vanishes,
so do step sizes, and a draw on "boston" would have taken 17,000 leapfrogs. Trajectories of length 0.3 with adapted
steps (0.1 for energy; 0.02 for naval, whose chains start at an ensemble of 2,000 epochs) are far too short to mix:
R-hat says so in every row, and HMC here is what chains find in 100 transitions from members of an ensemble. For the
paper's 250 draws of three chains, trajectories of pi / 2, all rows and 20 splits, two cores would need some 15 hours
for five of the sets and 25 days for naval, at 0.14 ms a leapfrog of 927 rows.

IMDB is left to the paper's scale: HMC on 200 reviews of 20 to 28 words classified 51 % of the held-out reviews, no
better than chance, while a linear model of the 500 most frequent words needs 500 reviews of 100 words for 70 %.
"""

REMARKS: dict[str, str] = {
    "better likelihood than deep ensembles": (
        "HMC has the higher likelihood on the CNN and the lower one on the MLP, whose prior of variance 1/10 makes "
        "it under-confident: by 0.10 over both networks. With variance 1/2 HMC's NLL on the MLP is 0.70 instead of "
        "0.72, and the deep ensemble's, under its own prior of 1/10, is 0.69."
    ),
    "one network is over-confident": (
        "Not looked into. The networks here are small, 3,322 and 679 weights, and have the same narrow prior as HMC; "
        "the paper's ResNet-20 has 270,000."
    ),
    "none is HMC": (
        "Four chains of 50 and 80 draws are too few to tell: one chain is 0.06 and 0.08 from the other three, "
        "probably Monte Carlo error for the most part, and preconditioned and cyclical SGHMC come as close, being "
        "compared with all four."
    ),
    "no cold posterior effect": (
        "It is the prior. With variance 1/10 HMC is under-confident, and a colder posterior mends that. With "
        "variance 1/2, the same images and the same sampler, the NLL is 0.687 at T = 1, 0.704 at 0.3, 0.711 at 0.1 "
        "and 0.738 at 0.03 (means of three seeds): then the claim holds."
    ),
    "cold posteriors hurt": (
        "See above: with a prior of variance 1/2 a posterior at T = 0.03 is worse by 0.05 nats. Chains as cold as "
        "this disagree (R-hat 2)."
    ),
    "without augmentation they are not": (
        "SGHMC samples the same posterior as HMC, with the same prior of variance 1/10, and shows the same effect, "
        "0.04 nats; crops and flips make it three times as large."
    ),
    "the prior's scale hardly matters": (
        "Between 1/10 and 1/2 the accuracy differs by 0.01, as in the paper; 1/40 is too narrow for 16 hidden units. "
        "The paper's CNN-LSTM loses 0.02 at its narrowest prior, too."
    ),
    "better than one network under any scale": (
        "MAP has the prior of variance 1/10 here, and HMC's lowest accuracy is that with 1/40: see the remark "
        "above. With 1/10 and 1/2, HMC is more accurate."
    ),
}
