"""JSON that YAML readers read. It is apart so that persistent plugins needn't load a YAML library."""

from __future__ import annotations

import json
import re
from typing import Any

# What JSON leaves as it is, but YAML doesn't take as it is.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def dump_json(data: Any) -> str:
    """Writes JSON that is YAML, too."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))
    return _UNPRINTABLE.sub(lambda m: f"\\u{ord(m.group()):04x}", text)
