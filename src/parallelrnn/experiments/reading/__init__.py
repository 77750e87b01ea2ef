"""From results to tables, verdicts and figures, beside what the paper reports."""
