"""The folders of the pipeline."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from . import files
from .files import nobody_else


@dataclass(frozen=True)
class Place:
    """All that the pipeline writes lies below `root`. Each item has a folder, or a file, of its own in each folder.

    `patience`: seconds for which a batch may wait for a person. `smtp`: the host of a mail server, and `:port` where it
    is not 25; '': mails go to a Maildir. `check` is called before each change, and raises where another run has the
    batch now.
    """

    root: Path
    patience: float = 86400.0
    smtp: str = ""
    check: Callable[[], None] = nobody_else

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
        """The results of jpylyzer, for each page."""
        return self.root / "jpylyzer"

    @property
    def histograms(self) -> Path:
        return self.root / "histograms"

    @property
    def flagged(self) -> Path:
        """The pages that a curator has to check."""
        return self.root / "manual-qa"

    @property
    def editions(self) -> Path:
        return self.root / "editions"

    @property
    def mail(self) -> Path:
        """A Maildir."""
        return self.root / "mail"

    @property
    def sent(self) -> Path:
        """An empty file for each reminder that the mail server has accepted."""
        return self.root / "sent"

    def put(self, path: Path, body: bytes) -> None:
        files.put(path, body, self.check)

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        self.check()
        files.remove(path)

    def keep_only(self, folder: Path, names: Iterable[str]) -> None:
        """The folder, with these files alone."""
        files.make_folder(folder)
        self.check()
        files.keep_only(folder, names)
