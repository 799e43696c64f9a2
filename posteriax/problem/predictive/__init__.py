"""Predictive: a posterior's predictions for new inputs, draw by draw, and everything derived from them.

    p(y | x, D) ~ 1/S sum_s p(y | x, w_s)

The outputs of every draw are kept, so that disagreement between draws can be told from noise; or, where that would need
too much memory, only sums over the draws.
"""
