"""Scheduled buffering (SurrogateTrain / SOLAR): an offline plan, and a loader that follows it.

All shuffles of all epochs are known from the seed, so which samples stay in which rank's
buffer, who trains on what and who reads what is decided before the first step.

Source of the idea: Sun et al., SOLAR, PVLDB 16(1); arXiv 2211.00224.
"""

from .plan import Plan, PlanSettings, StepPlan, make_plan

__all__ = ["Plan", "PlanSettings", "StepPlan", "make_plan"]
