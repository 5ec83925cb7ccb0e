"""How the small English starter checkpoint is made: data, training, finishing, evaluation."""
