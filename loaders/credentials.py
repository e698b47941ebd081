"""Credentials in what is printed: a path or an option that holds one is repeated without it."""

from __future__ import annotations

import re

HIDDEN = "***"

_NAME = r"(?:token|secret|password|passwd|signature|sig|credential|(?:api|access|secret)[_-]?key)"
_VALUE = r"[^\s&\"'\\,;]+"
_PATTERNS = (
    # https://user:secret@host, also where a path has made one slash of two
    re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]{0,20}:/{1,2})[^/\s\"'@]+@"),
    # --token X, --api-key=X, ?X-Amz-Signature=X, HF_TOKEN=X
    re.compile(rf"(\b[\w.-]{{0,40}}{_NAME}\s*=\s*){_VALUE}", re.IGNORECASE),
    re.compile(rf"(--[\w-]{{0,40}}{_NAME}\s+){_VALUE}", re.IGNORECASE),
    re.compile(rf"(\bbearer\s+){_VALUE}", re.IGNORECASE),
    # Tokens that say by their beginning what they are
    re.compile(r"()\b(?:sk-|hf_|ghp_|github_pat_|glpat-|xox[abp]-|AKIA)[\w-]{12,}"),
)


def hidden(text: str) -> str:
    """The text with HIDDEN in place of each credential."""
    for number, pattern in enumerate(_PATTERNS):
        text = pattern.sub(rf"\g<1>{HIDDEN}{'@' * (not number)}", text)
    return text
