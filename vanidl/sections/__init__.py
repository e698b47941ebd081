"""Topics of a run, a file each: their figures, words, text, tables and JSON.

No statistics and no files. `registry` lists the topics, in the orders of page, text and JSON.
"""
