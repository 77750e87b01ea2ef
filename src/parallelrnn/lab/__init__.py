"""The laboratory: the paper's data sets and experiments, and the benchmarks. Nothing in the library imports it."""
