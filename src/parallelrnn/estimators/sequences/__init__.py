"""The inside of `SequenceRegressor` and `SequenceClassifier`: from sequences to a network and what it says."""
