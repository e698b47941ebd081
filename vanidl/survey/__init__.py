"""Many jobs of one machine: a row each, and a page of the fleet.

`jobs` finds which logs are one job, `rows` turns a job into a row, `working` shares the jobs out
over processes or a Dask cluster, `keeping` holds what is done, `fleet` draws the page.
"""

from __future__ import annotations

from vanidl.survey.surveying import Survey, survey

__all__ = ["Survey", "survey"]
