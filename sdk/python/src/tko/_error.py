"""What the SDK raises."""


class Error(Exception):
    """Something is wrong, and the message says what. Raise it in a plugin to refuse."""
