"""JSON that YAML readers read, in a module of its own so that persistent plugins don't load a YAML library."""

from __future__ import annotations

import json
import re
from typing import Any

# Characters that JSON doesn't escape, but YAML doesn't permit.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def dump_json(data: Any) -> str:
    """Writes JSON that is also YAML."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))
    return _UNPRINTABLE.sub(lambda m: f"\\u{ord(m.group()):04x}", text)
