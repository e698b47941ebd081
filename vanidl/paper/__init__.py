"""Figures for papers: PDF, SVG and PNG, readable in print and without colour."""
