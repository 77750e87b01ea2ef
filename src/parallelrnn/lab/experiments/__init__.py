"""Every table and figure of arXiv 2605.02692 as an experiment that runs on a plain CPU, and what comes of them.

One file here holds one experiment: its configuration, with the paper's values, and how a run of it goes; beside them
stands what they share, and `registry` has them all. `running` makes results of jobs, in one process, several or a
cluster: each is kept as it comes, and what was killed goes on. `reading` makes tables, verdicts and figures of results.
Neither is known to the experiments, nor `reading` to `running`. `parallelrnn reproduce` is the door.
"""
