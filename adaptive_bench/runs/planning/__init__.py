"""What a run consists of: trainings and sweeps, the model and the text they need, and where each is on disk."""
