"""The front end's types are generated from the API's schemas: what stands there is what the schemas say now."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LABEXTENSION = Path(__file__).resolve().parents[2] / "labextension"


def test_schema_of_the_front_end_is_what_the_api_exchanges() -> None:
    printed = subprocess.run(
        [sys.executable, str(LABEXTENSION / "scripts/schema.py")], capture_output=True, text=True, check=True
    ).stdout
    stored = (LABEXTENSION / "src/api/schema.json").read_text()
    assert json.loads(stored) == json.loads(printed), (
        "src/api/schema.json is out of date: see labextension/scripts/schema.py for what to run"
    )


def test_every_struct_of_the_schema_has_a_type_with_the_same_fields() -> None:
    schema = json.loads((LABEXTENSION / "src/api/schema.json").read_text())["definitions"]
    types = (LABEXTENSION / "src/api/schemas.ts").read_text()
    for name, definition in schema.items():
        _, found, rest = types.partition(f"export interface {name} {{\n")
        assert found, f"src/api/schemas.ts has no {name}: jlpm generate:types"
        body = rest.partition("\n}\n")[0]
        fields = {
            line.strip().split(":")[0].rstrip("?")
            for line in body.splitlines()
            if line.startswith("  ") and not line.startswith("   ") and ":" in line
        }
        assert fields == set(definition["properties"]), f"{name} in src/api/schemas.ts: jlpm generate:types"
