"""Running programs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from ._error import Error


class ExecuteError(Error):
    """A program failed. The message has its stderr."""

    def __init__(self, message: str, returncode: int, stderr: str) -> None:
        super().__init__(message)
        self.returncode = returncode
        self.stderr = stderr


def execute(*args: object, env: Mapping[str, str] | None = None, input: str | None = None) -> str:
    """Runs a program, and returns its stdout.

    ``env`` is added to the environment; ``input`` is given to it as stdin, which is empty without. Raises what it
    wrote to stderr if it fails.
    """
    command = [str(a) for a in args]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **env} if env is not None else None,
            input=input if input is not None else "",
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as e:
        raise ExecuteError(f"{command[0] if command else 'nothing'} can't be run: {e.strerror}", -1, "") from None
    if done.returncode != 0:
        stderr = done.stderr.strip()
        raise ExecuteError(f"{command[0]} ended with {done.returncode}: {stderr}", done.returncode, stderr)
    return done.stdout
