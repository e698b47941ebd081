"""A server of the Model Context Protocol: assistants ask it, and answer from measured numbers."""
