# SPDX-License-Identifier: MIT
"""What constraints of schemas admit is valid to the package jsonschema, schema by schema.

    validate_texts.py <write_schema_texts> <quick|slow> [seed]
"""
import decimal
import json
import os
import pathlib
import random
import re
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
    known = jsonschema.FormatChecker(formats=[f for f in ("date", "ipv4", "ipv6", "uuid", "email")
                                              if f in jsonschema.FormatChecker.checkers])
    return cls(schema, format_checker=known)


def pairs(members):
    value = dict(members)
    if len(value) != len(members):
        raise ValueError(f"a name twice: {members}")
    return value


def is_of_python(error, text):
    """Where Python differs from the standards: no year 0, and `.` that matches more than in ECMA-262."""
    if error.validator == "format":
        return str(error.instance).startswith("0000-")
    other_ends = any(c in json.dumps(json.loads(text)) for c in ("\\r", "\\n", "\\u2028", "\\u2029"))
    return other_ends and any(word in json.dumps(error.schema, default=str) for word in ("pattern", "Pattern"))


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
    decimal.getcontext().prec = 500
    counts = dict(schemas=0, refused=0, texts=0, unfinished=0) | {"not judged": 0}
    wrong = []
    warnings.simplefilter("ignore")
    for line in filter(None, out.split("\n")):  # splitlines() also cuts at U+2028
        # Decimals on both sides: a double is no multiple of 0.01, and has not the digits of long numbers.
        entry = json.loads(line, parse_float=decimal.Decimal)
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
            value = json.loads(text, object_pairs_hook=pairs, parse_float=decimal.Decimal)
            try:
                errors = list(validator.iter_errors(value))
            except re.error:  # what Python's expressions do not know, as \\p{L}
                counts["not judged"] += 1
                continue
            except Exception as error:  # a reference that the package does not find
                counts["not judged"] += 1
                if "Unresolvable" not in type(error).__name__ and "RefResolution" not in type(error).__name__:
                    wrong.append((entry["schema"], text, f"{type(error).__name__}: {error}"))
                continue
            if errors and is_of_python(errors[0], text):
                counts["not judged"] += 1
            elif errors:
                wrong.append((entry["schema"], text, errors[0].message))
    print(f"seed {seed}: {counts}")
    first = {json.dumps(schema, default=float): (schema, text, why) for schema, text, why in reversed(wrong)}
    for schema, text, why in list(first.values())[:20]:
        print("INVALID", json.dumps(schema, default=float)[:1500], "|", text[:600], "|", why[:300])
    if wrong or counts["texts"] < counts["schemas"]:
        print(len(wrong), "wrong")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
