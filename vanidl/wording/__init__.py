"""Results in words: headline, alt text, clocks, data, glossary."""
