"""Errors about several jobs at once, and about calls."""

from typing import Self

from disque_trio.respclient.errors import DisqueError


class AddManyError(DisqueError):
    """Some jobs of an ``add_many`` or ``publish`` were not added.

    Attributes:
        results: one entry for each body, or for each queue of the topic, in order: the job id, or
            the error of that job.
    """

    def __init__(self, results: "list[str | DisqueError]") -> None:
        failures = [result for result in results if isinstance(result, DisqueError)]
        super().__init__(
            f"{len(failures)} of {len(results)} jobs were not added; the first: {failures[0]}"
        )
        self.results = results

    def __reduce__(self) -> "tuple[type[Self], tuple[list[str | DisqueError]]]":
        return type(self), (self.results,)

    @property
    def first(self) -> DisqueError:
        """The error of the first job that was not added."""
        return next(result for result in self.results if isinstance(result, DisqueError))


class CallError(DisqueError):
    """The handler that served a ``call`` raised an exception, whose text this error carries."""
