"""`python -m tests.golden` rewrites the golden numbers and says which keys changed, and where."""

from __future__ import annotations

import sys
from collections import defaultdict

from tests.golden import FOLDER, changed_keys, digests, golden, keep, own_logs, shared_logs, summary


def main() -> None:
    """Own logs whole; of those beside the repository, where they are there, the digests."""
    changed: dict[str, list[str]] = defaultdict(list)
    own = own_logs()
    for name, path in own.items():
        found = summary(path)
        for key in changed_keys(golden(name), found):
            changed[key].append(name)
        keep(name, found)
    for path in FOLDER.glob("*.json.gz"):
        if path.name.removesuffix(".json.gz") not in {*own, "shared"}:
            path.unlink()
    before = golden("shared")
    after = {name: digests(summary(path)) for name, path in shared_logs().items()}
    for name, found in after.items():
        for key in changed_keys(before.get(name, {}), found):
            changed[key].append(name)
    keep("shared", after or before)
    for key, names in sorted(changed.items()):
        sys.stdout.write(f"{key}: {', '.join(names[:4])}{' ...' if len(names) > 4 else ''}\n")
    sys.stdout.write(f"{len(changed)} keys changed\n")


if __name__ == "__main__":
    main()
