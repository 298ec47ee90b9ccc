"""What is looked at after the rounds: traces of steps, profiles of workers, the model."""
