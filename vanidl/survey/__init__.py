"""Many jobs of one machine: one row per job, and one page for all.

`jobs` finds which logs are one job, `rows` turns a job into a row, `survey` distributes jobs over
processes or a Dask cluster, `cache` holds the rows that are done, `page` draws the page,
`groups` and `weeks` its answers: who loses most hours to input, and what changed.
"""

from __future__ import annotations

from vanidl.survey.survey import Survey, survey

__all__ = ["Survey", "survey"]
