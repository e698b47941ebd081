"""DFTracer traces (`.pfw`, `.pfw.gz`)."""
