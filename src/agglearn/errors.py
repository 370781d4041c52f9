"""The user's mistakes, one exception kind for each place they are met.

Every message is one line that says what is wrong, where, and what to do. The command line prints
it and exits with code 2; anything else that is raised is a bug.
"""


class AgglearnError(Exception):
    """Base of every error that a user can mend."""


class InputError(AgglearnError, ValueError):
    """Records, options or values that cannot be used."""


class SchemaError(AgglearnError):
    """A schema that is not valid, or data that do not fit it."""


class TableError(AgglearnError):
    """Tables that contradict themselves or one another."""


class StoreError(AgglearnError):
    """A file of ours that is missing, damaged, foreign or of another version."""


class TooLargeError(AgglearnError):
    """A request that would not fit in memory; the message says what it would need."""


class MissingExtraError(AgglearnError):
    """An optional part that is not installed; the message names the extra."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part: pip install 'agglearn[{extra}]'")


def one_line(error: BaseException) -> str:
    """What an error says, on one line."""
    return " ".join(str(error).split())[:200]
