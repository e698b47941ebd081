"""What figures share: the record, colours, zoom levels, downsampling, shown steps."""
