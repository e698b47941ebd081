"""A run in a notebook: it displays itself, its figures are plotly's, its page opens in a cell."""
