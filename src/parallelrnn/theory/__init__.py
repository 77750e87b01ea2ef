"""The theorems of arXiv 2605.02692 as code that can be run.

`complexity` counts what a layer costs (Theorem 2); `random_matrices` and `density` say which features recurrent
matrices have, and how near 2 x 2 blocks come (Proposition 2, Theorem 1); `bounds` holds Theorems 3 to 5 and Corollary
1; `equivalence` turns feedforward networks into ParaRNNs and back (Proposition C.1); `regression` is Section 4 as an
experiment.
"""
