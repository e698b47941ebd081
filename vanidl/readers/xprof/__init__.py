"""Profiles of TensorFlow and JAX."""
