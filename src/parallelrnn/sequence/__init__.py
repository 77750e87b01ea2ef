"""SequenceClassifier and SequenceRegressor: scikit-learn estimators for sequences."""
