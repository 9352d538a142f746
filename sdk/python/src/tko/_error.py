"""The base class of the SDK's errors."""


class Error(Exception):
    """An error with a message for users. Raise it in a plugin to refuse a request."""
