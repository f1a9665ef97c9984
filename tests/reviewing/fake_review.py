"""A made-up audit with its table, in a form that a review can open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from auditing.page.fake import write_audit
from labeltide.auditing.decisions import file_digest
from labeltide.reviewing.app import make_app
from labeltide.reviewing.session import Session, open_session

PORT, TOKEN = 8765, "secret"
HOST = f"127.0.0.1:{PORT}"


def write_review(folder: Path, *, columns: tuple[str, ...] = ("acc_x", "acc_y", "heart_rate"), **how: Any) -> Path:
    """Write the files of an audit and, beside its folder, the table that it came from."""
    write_audit(folder, **({"sequences": 6, "steps": 60} | how))
    labels = parquet.read_table(folder / "labels.parquet")
    random = np.random.default_rng(0)
    codes = labels["recorded"].dictionary_encode().combine_chunks().indices.fill_null(0).to_numpy()
    values = {name: codes * (index + 1) + random.normal(size=len(labels)) for index, name in enumerate(columns)}
    table = folder.with_name(f"{folder.name}.parquet")
    parquet.write_table(pa.table({"person": labels["sequence"], **values}), table, row_group_size=100)
    change_audit(folder, name=table.name, path=str(table), digest=file_digest(table), features=list(columns))
    return folder


def change_audit(folder: Path, **changes: Any) -> None:
    """Change what audit.json says of the table."""
    audit = json.loads((folder / "audit.json").read_text())
    audit["table"] |= changes
    (folder / "audit.json").write_text(json.dumps(audit))


class Page:
    """The page of a review, as a client that says what a browser would."""

    def __init__(self, session: Session, reviewer: str = "Ada") -> None:
        from starlette.testclient import TestClient

        headers = {"host": HOST, "origin": f"http://{HOST}"}
        self.client = TestClient(make_app(session, PORT, TOKEN), base_url=f"http://{HOST}", headers=headers)
        self.reviewer = reviewer
        self.n_requests = 0

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        answer = self.client.get(f"/{TOKEN}/api/{path}", params={"reviewer": self.reviewer, **query})
        return {"status": answer.status_code, **answer.json()}

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self.client.post(f"/{TOKEN}/api/{path}", json={"reviewer": self.reviewer, **body})
        return {"status": answer.status_code, **answer.json()}

    def decide(self, position: int, action: str = "keep", **body: Any) -> dict[str, Any]:
        self.n_requests += 1
        request = f"{self.reviewer} {id(self)} {self.n_requests}"
        return self.post(
            "decide", **{"position": position, "action": action, "unit": "step", "request": request} | body
        )


def open_page(folder: Path, reviewer: str = "Ada", **how: Any) -> tuple[Session, Page]:
    session = open_session(folder, **({"items": 10, "sample": 20} | how))
    return session, Page(session, reviewer)
