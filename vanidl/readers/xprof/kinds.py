"""The kinds of files of TensorFlow's and JAX's profiles."""

XPLANE, TRACE_VIEWER, STEP_TABLE = "xplane", "trace_viewer", "input_pipeline"
