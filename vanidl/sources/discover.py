"""Files of a run."""
from dataclasses import dataclass
import re
from pathlib import Path
@dataclass(frozen=True, slots=True)
class ProfilerName:
    """x."""
    host: str
    pid: int | None
def profiler_name(path: Path) -> ProfilerName | None:
    """x."""
    m = re.match(r"(.+)_(\d+)\.(\d+)\.pt\.trace\.json", path.name)
    return ProfilerName(m[1], int(m[2])) if m else None
