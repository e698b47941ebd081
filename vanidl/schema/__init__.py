"""Records: their methods, what their fields mean, and the JSON Schema that is made from them."""
