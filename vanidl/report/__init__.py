"""Documents: results and figures in, HTML, text or JSON out."""
