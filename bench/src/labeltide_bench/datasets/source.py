"""Source of archives: the official address, or local files."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus, urlsplit

# Called with what is being downloaded, the bytes so far and the bytes in all (0 where unknown).
OnProgress = Callable[[str, int, int], None]

ATTEMPTS = 3
WAIT_SECONDS = 2.0  # before the second attempt; twice as long before the third
TIMEOUT_SECONDS = 60.0  # without a single byte


@dataclass(frozen=True)
class Source:
    """Local archives where there are some, else downloads into the folder."""

    folder: Path
    local_files: tuple[Path, ...] = ()
    on_progress: OnProgress | None = None

    def single(self, url: str) -> Path:
        """The archive of a data set that consists of one."""
        if not self.local_files:
            return self.download(url)
        if len(self.local_files) > 1 or not self.local_files[0].is_file():
            raise ValueError(f"archives must be one file. Got {', '.join(map(str, self.local_files))}.")
        return self.local_files[0]

    def download(self, url: str, sha256: str | None = None, title: str | None = None) -> Path:
        """Download a file, and compare it with its checksum where one is known."""
        name = unquote_plus(urlsplit(url).path.rsplit("/", 1)[-1])
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._retrieve(url, sha256, name, title or name)
            except (OSError, ValueError) as error:  # of requests, or a wrong checksum
                problem = error
            if attempt < ATTEMPTS:
                time.sleep(WAIT_SECONDS * attempt)
        raise ValueError(f"{url} could not be downloaded in {ATTEMPTS} attempts: {problem}") from problem

    def _retrieve(self, url: str, sha256: str | None, name: str, title: str) -> Path:
        pooch = _load_pooch()
        bar = _Bar(title, self.on_progress) if self.on_progress else False
        downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=2**18, timeout=TIMEOUT_SECONDS)
        known_hash = f"sha256:{sha256}" if sha256 else None
        return Path(pooch.retrieve(url, known_hash, fname=name, path=self.folder, downloader=downloader))


class _Bar:
    """The few methods of a progress bar that pooch calls."""

    def __init__(self, title: str, on_progress: OnProgress) -> None:
        self.title = title
        self.on_progress = on_progress
        self.total = 0
        self.done = 0

    def update(self, n_bytes: int) -> None:
        self.done += n_bytes
        # pooch counts whole chunks, so the last one overshoots.
        self.on_progress(self.title, min(self.done, self.total or self.done), self.total)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass


def _load_pooch() -> Any:
    try:
        import pooch  # here, so that labeltide works without it
    except ImportError:
        raise ImportError(
            "Downloading needs pooch, which is not installed. Install it with `pip install pooch`, or "
            "download the archives by hand and pass their paths as `archives`."
        ) from None
    pooch.get_logger().setLevel("WARNING")  # its advice about hashes is for developers
    return pooch
