"""Training: encoding, one data order for every method, the loop, and checkpoints from which it resumes exactly."""
