"""What to change about a run, why, and what it would gain: rules, actions and predictions."""
