"""Analyses: a trace in, small frozen results out."""
