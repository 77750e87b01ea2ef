"""Every table and figure of arXiv 2605.02692 as an experiment that runs on a plain CPU.

A file holds one experiment: its configuration, with the paper's values, and the function that runs it. Beside them
stands what they share; `registry` has them all. Experiments know neither who runs them nor who reads their results:
`executors` runs them, `runs` stores the results, `results_page` and `figures` show them. `parallelrnn reproduce` does
all of it.
"""
