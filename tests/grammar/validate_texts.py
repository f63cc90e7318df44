# SPDX-License-Identifier: MIT
"""What constraints of schemas admit is valid to the package jsonschema, schema by schema.

    validate_texts.py <write_schema_texts> <quick|slow> [seed]
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import warnings

SKIP = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]

try:
    import jsonschema
except ImportError:
    print("no package jsonschema: skipped")
    sys.exit(SKIP)


def files_of(golden):
    return sorted(map(str, (golden / "json_schema").glob("*.json"))) + [str(golden / "maskbench/schemas.jsonl")]


def validator_of(schema):
    cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    # Formats that the package judges with its own code alone; the others need packages of their own.
    known = jsonschema.FormatChecker(formats=[f for f in ("date", "ipv4", "ipv6", "uuid", "email", "time", "regex")
                                              if f in jsonschema.FormatChecker.checkers])
    return cls(schema, format_checker=known)


def pairs(members):
    """Names that the schema does not declare may come twice; then the last one counts, as it does to json."""
    return dict(members)


def main():
    program, size = sys.argv[1:3]
    golden = pathlib.Path(os.environ.get("TINFER_GOLDEN") or ROOT.parent / "shared" / "golden")
    if not (golden / "maskbench/schemas.jsonl").exists():
        print("skipped: set TINFER_GOLDEN to the folder of golden data")
        return SKIP
    seed = random.SystemRandom().randrange(2**32) if size == "slow" else 20260
    if len(sys.argv) > 3:
        seed = int(sys.argv[3])
    n_texts, every = (40, 1) if size == "slow" else (6, 7)
    out = subprocess.run([program, str(n_texts), str(seed), str(every), *files_of(golden)], check=True,
                         capture_output=True, text=True).stdout
    counts = dict(schemas=0, refused=0, texts=0, unfinished=0, unresolved=0)
    wrong = []
    warnings.simplefilter("ignore")
    for line in out.splitlines():
        entry = json.loads(line)
        counts["schemas"] += 1
        if "refused" in entry:
            counts["refused"] += 1
            continue
        counts["unfinished"] += entry["unfinished"]
        if entry["missed"]:
            wrong.append((entry["schema"], "", f"{entry['missed']} admitted texts that matches() does not allow"))
        validator = validator_of(entry["schema"])
        for text in entry["texts"]:
            counts["texts"] += 1
            value = json.loads(text, object_pairs_hook=pairs)
            try:
                errors = list(validator.iter_errors(value))
            except Exception as error:  # a reference that only a loader of others finds
                counts["unresolved"] += 1
                if "Unresolvable" not in type(error).__name__ and "RefResolution" not in type(error).__name__:
                    wrong.append((entry["schema"], text, f"{type(error).__name__}: {error}"))
                continue
            if errors:
                wrong.append((entry["schema"], text, errors[0].message))
    print(f"seed {seed}: {counts}")
    for schema, text, why in wrong[:20]:
        print("INVALID", json.dumps(schema)[:1500], "|", text[:600], "|", why[:300])
    if wrong or counts["texts"] < counts["schemas"]:
        print(len(wrong), "wrong")
        return 1
    return 0


sys.exit(main())
