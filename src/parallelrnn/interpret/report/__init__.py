"""One HTML page about a model."""

from parallelrnn.interpret.report.page import report
from parallelrnn.interpret.report.reading import Reading, read

__all__ = ["Reading", "read", "report"]
