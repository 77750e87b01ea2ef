"""One page about a model, for its reader's browser."""

from parallelrnn.interpret.report.page import report
from parallelrnn.interpret.report.reading import Reading, read

__all__ = ["Reading", "read", "report"]
