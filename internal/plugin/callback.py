# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0
"""Writes the output of a playbook, and its first failure, to the file TKO_ANSIBLE_OUTPUT."""

from __future__ import annotations

import json
import os

from ansible.parsing.ajson import AnsibleJSONEncoder
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: tko_output
type: aggregate
short_description: Writes the output of a playbook to a file
description: Writes the stat plugin_output, and the first failed task, to the file TKO_ANSIBLE_OUTPUT.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "tko_output"
    CALLBACK_NEEDS_ENABLED = True

    failure = None

    def _failed(self, result):
        if self.failure is not None:
            return
        values = result._result
        if getattr(result._task, "no_log", False) or values.get("_ansible_no_log"):
            message = "the output is hidden (no_log)"
        else:
            message = values.get("msg") or values.get("stderr") or values.get("stdout") or ""
        self.failure = f"task {result._task.get_name()!r} on host {result._host.get_name()!r}: {message}"

    def v2_runner_on_failed(self, result, ignore_errors=False):
        if not ignore_errors:
            self._failed(result)

    def v2_runner_on_unreachable(self, result):
        self._failed(result)

    def v2_playbook_on_stats(self, stats):
        custom = stats.custom.get("_run", {})
        document = {"failure": self.failure or "", "output": custom.get("plugin_output")}
        with open(os.environ["TKO_ANSIBLE_OUTPUT"], "w", encoding="utf-8") as f:
            json.dump(document, f, cls=AnsibleJSONEncoder)
