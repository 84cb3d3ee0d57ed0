"""The folders of the pipeline."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """All that the pipeline writes lies below `root`. Each item has a folder, or a file, of its own in each folder.

    `patience`: seconds for which a batch may wait for a person.
    """

    root: Path
    patience: float = 86400.0

    @property
    def deliveries(self) -> Path:
        return self.root / "deliveries"

    @property
    def metadata(self) -> Path:
        return self.root / "archive" / "metadata"

    @property
    def data(self) -> Path:
        return self.root / "archive" / "data"

    @property
    def characterised(self) -> Path:
        """The findings of jpylyzer, for each page."""
        return self.root / "jpylyzer"

    @property
    def histograms(self) -> Path:
        return self.root / "histograms"

    @property
    def flagged(self) -> Path:
        """The pages that a person has to look at."""
        return self.root / "manual-qa"

    @property
    def editions(self) -> Path:
        return self.root / "editions"

    @property
    def mail(self) -> Path:
        """A Maildir."""
        return self.root / "mail"
