"""Training: one trainer for everything that learns, its checkpoints, losses and schedules."""
