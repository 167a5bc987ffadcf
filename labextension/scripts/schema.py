"""Prints the JSON schema of all that the front end exchanges with the API and with the server extension.

`python labextension/scripts/schema.py > labextension/src/api/schema.json && (cd labextension && jlpm generate:types)`;
tests/unit/test_front_end_types.py fails when that was forgotten.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from gpucluster.api import schemas
from jupyter_gpucluster.server_extension import messages

#: Everything a page sends or receives; what these refer to comes along.
ROOTS: tuple[Any, ...] = (
    schemas.CancelRequest,
    schemas.DryRun,
    schemas.ErrorAnswer,
    schemas.HistoryView,
    schemas.JobList,
    schemas.JobSubmission,
    schemas.LiveUpdate,
    schemas.ShareRequest,
    schemas.StepsView,
    schemas.StreamItem,
    schemas.WhyView,
    messages.Open,
    messages.Close,
    messages.Ack,
    messages.Claim,
    messages.Release,
    messages.Hello,
    messages.Alive,
    messages.Items,
    messages.Ended,
    messages.Failed,
    messages.Claimed,
    messages.CellOp,
)


def definitions() -> dict[str, Any]:
    """JSON Schema of every struct by name, as it looks on the wire."""
    _, found = msgspec.json.schema_components(ROOTS, ref_template="#/definitions/{name}")
    for name, schema in found.items():
        schema.pop("title", None)
        if _always_whole(name):
            schema["required"] = list(schema["properties"])
        for field in schema["properties"].values():
            field.pop("title", None)
            field.pop("default", None)
    # JSON knows no NaN: such a metric travels as "nan", "inf" or "-inf".
    found["Progress"]["properties"]["metrics"]["additionalProperties"] = {"type": ["number", "string"]}
    return dict(sorted(found.items()))


def _always_whole(name: str) -> bool:
    """Whether every field is always there: answers that do not leave out what is at its default."""
    struct = getattr(schemas, name, None) or getattr(messages, name)
    config = struct.__struct_config__
    return not (config.omit_defaults or config.forbid_unknown_fields)


def main() -> None:
    schema = {"title": "Schemas", "definitions": definitions()}
    json.dump(schema, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
