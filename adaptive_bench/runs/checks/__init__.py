"""What is looked at before a run: the model, the methods on it, the tasks' documents."""
