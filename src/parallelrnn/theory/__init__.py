"""The theorems of arXiv 2605.02692 as code that can be run."""
