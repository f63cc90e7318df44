# SPDX-License-Identifier: MIT
"""[S9] What a trained model writes under a schema is valid to the package jsonschema, wherever it came to an end.

    validate_model.py <tinfer> <quick|slow>
"""
import decimal
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

from validate_texts import ROOT, SKIP, is_of_python, pairs, validator_of

MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
SHORT = [
    {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20},
                                      "inhabitants": {"type": "integer", "minimum": 0, "maximum": 40000000}},
     "required": ["city", "inhabitants"], "additionalProperties": False},
    {"type": "array", "items": {"enum": ["red", "green", "blue", None, 7]}, "minItems": 2, "maxItems": 4,
     "uniqueItems": True},
    {"type": "object", "properties": {"when": {"type": "string", "format": "date"},
                                      "share": {"type": "number", "multipleOf": 0.25, "minimum": 0, "maximum": 4}},
     "required": ["when", "share"], "additionalProperties": False},
    {"anyOf": [{"type": "string", "pattern": "^[A-Z][a-z]{2,8}$"}, {"type": "boolean"}]},
    {"$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/leaf"}, "right": {"type": "null"}},
                        "required": ["left", "right"], "additionalProperties": False},
               "leaf": {"type": "string", "minLength": 1, "maxLength": 6}}, "$ref": "#/$defs/tree"},
]


def main():
    program, size = sys.argv[1:3]
    if not MODEL.exists():
        print("skipped: scripts/get_model.py smollm2")
        return SKIP
    golden = pathlib.Path(os.environ.get("TINFER_GOLDEN") or ROOT.parent / "shared" / "golden")
    file = golden / "maskbench/schemas.jsonl"
    more = [json.loads(line)["schema"] for line in file.open()][::2 if size == "slow" else 100] if file.exists() else []
    decimal.getcontext().prec = 500
    warnings.simplefilter("ignore")
    counts, wrong = {"valid": 0, "unfinished": 0, "refused": 0, "not judged": 0}, []
    folder = tempfile.TemporaryDirectory()
    there = pathlib.Path(folder.name, "schema.json")   # some are too long for a command line
    for i, schema in enumerate(SHORT + more):
        there.write_text(json.dumps(schema))
        done = subprocess.run([program, "run", MODEL, "-p", "An example as JSON:", "-n", "160", "-c", "512",
                               "--temp", "0.8", "--seed", str(i), "--json", "--json-schema", there],
                              capture_output=True)
        if done.returncode != 0:
            counts["refused"] += 1
            if b"schema" not in done.stderr.lower():
                wrong.append((schema, "", done.stderr.decode()[-300:]))
            continue
        document = json.loads(done.stdout)
        if document["stop"] != "eog":
            counts["unfinished"] += 1
            continue
        # Decimals on both sides: a double is no multiple of 0.01.
        value = json.loads(document["text"], object_pairs_hook=pairs, parse_float=decimal.Decimal)
        exact = json.loads(json.dumps(schema), parse_float=decimal.Decimal)
        try:
            errors = list(validator_of(exact).iter_errors(value))
        except Exception:   # an expression or a reference that the package does not know
            counts["not judged"] += 1
            continue
        if errors and not is_of_python(errors[0], document["text"]):
            wrong.append((schema, document["text"], errors[0].message))
        else:
            counts["valid"] += 1
    print(counts)
    for schema, text, why in wrong[:20]:
        print("INVALID", json.dumps(schema)[:1500], "|", text[:600], "|", why[:300])
    return 1 if wrong or counts["valid"] < len(SHORT) else 0


if __name__ == "__main__":
    sys.exit(main())
