"""What results put into a notebook, and a page of them all, as a static export has it."""

import json
import warnings

import numpy as np
import pyarrow as pa

import labeltide as lt
from auditing.page.fake import write_audit
from labeltide.auditing.run import TableAudit


def make_outputs(folder):
    """HTML by the name of the result, each from a real object; the table's audit is made up."""
    data = lt.corrupt(lt.make_sequences(n=20, n_steps=10, n_features=2, stay=0.9), lt.make_noise("growth", n_steps=10))
    clf = lt.TideClassifier(epochs=2, random_state=0)
    before = clf._repr_html_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.NoiseWarning)  # of so few sequences little can be told
        clf.fit(data.features, data.labels)
        results = {"NoiseEstimate": clf.noise_estimate_, "Temporality": clf.temporality_}
    audited = write_audit(folder / "audit", sequences=4, steps=60)
    nothing = pa.table({})
    results |= {
        "LabelAudit": clf.audit(data.features, data.labels),
        "Consensus": lt.consensus(np.repeat(data.labels, 3, -1)),
        "TableAudit": TableAudit(json.loads((audited / "audit.json").read_text()), nothing, nothing, clf),
    }
    outputs = {name: result._repr_html_() for name, result in results.items()}
    return {"estimator before fit": before, "estimator": clf._repr_mimebundle_()["text/html"], **outputs}


def static_page(outputs):
    """The outputs below each other, as nbconvert writes the cells of a notebook."""
    cells = "".join(f'<div class="output_html" id="cell-{index}">{html}</div>' for index, html in enumerate(outputs))
    head = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>outputs</title></head>'
    return f"{head}<body>{cells}</body></html>"
