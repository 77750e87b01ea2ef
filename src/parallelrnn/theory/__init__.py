"""The theorems of arXiv 2605.02692 as functions that can be run.

`complexity` counts the operations of a layer (Theorem 2); `random_matrices` and `density` say which features recurrent
matrices have, and how close 2 x 2 blocks come to them (Proposition 2, Theorem 1); `bounds` has Theorems 3 to 5 and
Corollary 1; `equivalence` converts feedforward networks to ParaRNNs and back (Proposition C.1); `regression` is
Section 4 as an experiment.
"""
