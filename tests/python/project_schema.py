"""Holds documents against the schema of project files: `project_schema.py SCHEMA < LINES`, each line a JSON object
with `name`, `doc` and `valid`. Prints every one on which the schema and the parser do not agree."""

import json
import sys

import jsonschema

with open(sys.argv[1], encoding="utf-8") as file:
    schema = json.load(file)
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
wrong = 0
for line in sys.stdin:
    case = json.loads(line)
    errors = [error.message for error in validator.iter_errors(case["doc"])]
    if case["valid"] != (not errors):
        wrong += 1
        print(f"{case['name']}: the parser says {case['valid']}, the schema {errors}: {case['doc']}")
sys.exit(1 if wrong else 0)
