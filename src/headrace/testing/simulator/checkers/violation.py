"""The error of every checker."""


class Violation(BaseException):
    """A guarantee was broken. Not an Exception, because the engine handles those."""
