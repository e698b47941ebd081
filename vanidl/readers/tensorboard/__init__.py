"""TensorBoard event files and input-pipeline tables."""
