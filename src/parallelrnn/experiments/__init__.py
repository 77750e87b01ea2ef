"""Every table and figure of arXiv 2605.02692 as an experiment that runs on a plain CPU, and the runner of them all.

One file holds one experiment: its configuration, with the paper's values, and how a run of it goes. `runner` runs a
grid of them in one process, several or a cluster; `store` keeps each result as it comes; `training` goes on where it
was killed. `parallelrnn reproduce` is the door.
"""
