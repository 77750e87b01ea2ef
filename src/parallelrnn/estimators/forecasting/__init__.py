"""The inside of a `Forecaster`: from a table to windows, a network, intervals and explanations."""
