"""Many jobs of one machine: one row per job, and one page for all.

`logs` finds which logs are one job, `rows` turns a job into a row, `survey` distributes jobs over
processes or a Dask cluster, `store` holds the rows that are done. `page` draws what `fleet` adds
up: `groups` says who loses most hours to input, `trend` what changed.
"""

from __future__ import annotations

from vanidl.survey.survey import Survey, survey

__all__ = ["Survey", "survey"]
