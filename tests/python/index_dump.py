"""Prints the rows of index.db that tell of the operator's control, without what is another in every rebuild.
Usage: index_dump.py PATH"""

import json
import sqlite3
import sys

db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
db.row_factory = sqlite3.Row
shown = {"sessions": [dict(row) for row in db.execute("SELECT id, state, bound_issue, pause FROM sessions ORDER BY id")]}
for table in ("checkpoints", "prompt_edits", "compactions", "compaction_aggregates", "approvals"):
    rows = db.execute(f"SELECT sessions.id AS of_session, t.* FROM {table} t JOIN sessions ON sessions.key = t.session "
                      "ORDER BY sessions.id, t.seq")
    shown[table] = [{key: row[key] for key in row.keys() if key != "session"} for row in rows]
shown["issues"] = [dict(row) for row in db.execute("SELECT * FROM issues ORDER BY project, number")]
shown["todos"] = [dict(row) for row in db.execute("SELECT * FROM todos ORDER BY issue, position")]
# How many records a log had when a row was written: a rebuild knows all of them from the beginning.
for issue in shown["issues"]:
    issue.pop("seq")
print(json.dumps(shown))
