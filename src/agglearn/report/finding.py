"""What everything that was found has in common: it can say itself."""

from __future__ import annotations

from abc import ABC, abstractmethod

from agglearn.report.document import Document
from agglearn.report.html import fragment
from agglearn.report.text import text


class Finding(ABC):
    """Something found, that says all of it in one document; ``print`` and notebooks show that."""

    @abstractmethod
    def document(self) -> Document:
        """What was found, in words and numbers."""

    def __str__(self) -> str:
        return text(self.document())

    def _repr_html_(self) -> str:
        return fragment(self.document())
