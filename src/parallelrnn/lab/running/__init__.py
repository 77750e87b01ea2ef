"""From jobs to results: who runs them, how far they are, and where what they found is kept."""
